package clustertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leased/cluster"
)

// authority signs certificates for nodes.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	var der []byte
	a.cert, a.key, der = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, der
}

func (a *authority) write(name, kind string, content []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// issue returns the files of a certificate for a name.
func (a *authority) issue(file, name string) cluster.TLSFiles {
	a.t.Helper()
	_, key, der := a.sign(&x509.Certificate{
		DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return cluster.TLSFiles{
		Cert: a.write(file+".pem", "CERTIFICATE", der), Key: a.write(file+".key", "PRIVATE KEY", private),
		CA: filepath.Join(a.dir, "ca.pem"),
	}
}

// TestCluster_tls: nodes whose certificates name them work together, also after
// all certificates were replaced under them.
func TestCluster_tls(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	c := New(t, Options{Configure: func(cfg *cluster.Config) { cfg.TLS = a.issue(cfg.NodeID, cfg.NodeID) }})
	c.Write("a")
	c.Agree("a")
	for _, id := range c.IDs() {
		a.issue(id, id)
	}
	one := c.Follower(c.Leader())
	c.Stop(one)
	c.Start(one)
	c.Write("b")
	c.Agree("a", "b")
}

// TestCluster_tls_refused: a certificate of another authority, one for another
// node, and none at all let nobody in.
func TestCluster_tls_refused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files func(ours, theirs *authority) cluster.TLSFiles
		why   string // as n1 sees it
	}{
		"another authority": {func(_, theirs *authority) cluster.TLSFiles { return theirs.issue("n2", "n2") }, "certificate"},
		"another node":      {func(ours, _ *authority) cluster.TLSFiles { return ours.issue("n2", "n3") }, "certificate"},
		"plain TCP":         {func(_, _ *authority) cluster.TLSFiles { return cluster.TLSFiles{} }, "tls"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := newAuthority(t), newAuthority(t)
			c := New(t, Options{Nodes: 2, Forming: true, Configure: func(cfg *cluster.Config) {
				cfg.TLS = ours.issue("n1", "n1")
				if cfg.NodeID == "n2" {
					cfg.TLS = test.files(ours, theirs)
				}
			}})
			c.Eventually("n1 says why it waits", func() bool {
				return strings.Contains(c.Node("n1").Status().Waiting, test.why)
			})
			c.Eventually("n2 waits as well", func() bool {
				return strings.Contains(c.Node("n2").Status().Waiting, "missing: n1")
			})
			for _, id := range c.IDs() {
				if s := c.Node(id).Status(); s.ClusterID != "" {
					t.Errorf("node %s belongs to cluster %s", id, s.ClusterID)
				}
			}
		})
	}
}
