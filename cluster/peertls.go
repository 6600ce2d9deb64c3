package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// TLSFiles names the PEM files for mutual TLS between nodes: this node's
// certificate and key, and the authorities that sign members' certificates. All
// three or none.
//
// Each side proves that its certificate was signed by one of the authorities and
// has its node id as a subject alternative name: ids are what identifies a node,
// addresses change. One certificate may name several nodes. It needs both uses,
// server and client authentication. An authority that signs for others too lets
// them in if it gives out such names.
//
// The files are read for each new connection, so that a renewed certificate needs
// no restart. When they cannot be read, those that were read last are used.
type TLSFiles struct {
	Cert string
	Key  string
	CA   string
}

func (f TLSFiles) check() error {
	set := 0
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		if name != "" {
			set++
		}
	}
	if set != 0 && set != 3 {
		return errors.New("cluster.tls needs cert, key and ca; give the missing ones, or remove all three for plain TCP on loopback")
	}
	return nil
}

// peerTLS makes the TLS configuration of each connection.
type peerTLS struct {
	files TLSFiles
	log   *slog.Logger

	mu   sync.Mutex
	last *tls.Config
}

// newPeerTLS returns nil where there is no TLS.
func newPeerTLS(files TLSFiles, log *slog.Logger) (*peerTLS, error) {
	if files == (TLSFiles{}) {
		return nil, nil //nolint:nilnil // plain TCP is a valid configuration on loopback
	}
	t := &peerTLS{files: files, log: log}
	config, err := t.load()
	if err != nil {
		return nil, fmt.Errorf("cluster.tls: %w", err)
	}
	t.last = config
	return t, nil
}

func (t *peerTLS) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.files.Cert, t.files.Key)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(t.files.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s: no certificate in it", t.files.CA)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}, nil
}

// config returns what is in the files now.
func (t *peerTLS) config() *tls.Config {
	config, err := t.load()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.log.Warn("cluster.tls cannot be read, the old certificates are used", "error", err)
		return t.last
	}
	t.last = config
	return config
}

// asClient returns the configuration to reach node with.
func (t *peerTLS) asClient(node string) *tls.Config {
	config := t.config().Clone()
	config.ServerName = node
	return config
}
