package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leased/client"
	"leased/test/proc"
)

// TestBackends_tls reaches a Valkey and an etcd that speak TLS and want a
// certificate of their clients: with the right files, and only then. Who trusts
// another authority, or shows no certificate, is not served, and the log says that
// it is about certificates.
func TestBackends_tls(t *testing.T) {
	authority, stranger := proc.NewAuthority(t), proc.NewAuthority(t)
	cert, key := authority.Issue(t, "server")
	clientCert, clientKey := authority.Issue(t, "gateway")
	port := proc.FreePort(t)
	proc.StartValkey(t, "tls-port", fmt.Sprint(port), "tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", authority.CA)
	etcd := proc.StartEtcd(t, proc.EtcdOptions{TLS: true, Args: []string{
		"--cert-file=" + cert, "--key-file=" + key, "--trusted-ca-file=" + authority.CA, "--client-cert-auth",
	}})
	valkeyAddress, etcdAddress := fmt.Sprint("127.0.0.1:", port), strings.TrimPrefix(etcd.Endpoints()[0], "https://")
	bin := proc.Build(t, "leased/cmd/leased")
	serve := func(t *testing.T, tls string) (*gatewayUnderTest, string) {
		t.Helper()
		dir := t.TempDir()
		leased := proc.StartLeasedOn(t, bin, dir, fmt.Sprintf(`
backends:
  cache: {type: valkey, addresses: ["%s"], tls: {%s}}
  coord: {type: etcd, endpoints: ["%s"], tls: {%s}}
namespaces:
  on-valkey: {backend: cache}
  on-etcd: {backend: coord}
`, valkeyAddress, tls, etcdAddress, tls))
		return &gatewayUnderTest{t: t, url: leased.URL, hidden: []string{valkeyAddress, etcdAddress}}, filepath.Join(dir, "log")
	}
	t.Run("the right files", func(t *testing.T) {
		g, _ := serve(t, fmt.Sprintf("ca: %s, cert: %s, key: %s", authority.CA, clientCert, clientKey))
		g.served("on-valkey")
		g.served("on-etcd")
		g.ready("on-valkey", "on-etcd")
	})
	for name, tls := range map[string]string{
		"another authority": fmt.Sprintf("ca: %s, cert: %s, key: %s", stranger.CA, clientCert, clientKey),
		"no certificate":    "ca: " + authority.CA,
	} {
		t.Run(name, func(t *testing.T) {
			g, log := serve(t, tls)
			g.ready()
			// A server may cut the connection before it is read why: then it is asked
			// again.
			for _, ns := range []string{"on-valkey", "on-etcd"} {
				proc.Until(t, "the log says of "+ns+" that it is about certificates", proc.Patience, func() bool {
					if err := g.cycle(ns, proc.Patience); !errors.Is(err, client.ErrUnavailable) {
						t.Errorf("%s answers %v, want %v", ns, err, client.ErrUnavailable)
					}
					text, err := os.ReadFile(log)
					if err != nil {
						t.Fatal(err)
					}
					return slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
						return strings.Contains(line, "namespace="+ns) && strings.Contains(line, "certificate")
					})
				})
			}
		})
	}
}
