package etcd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"leased/contract"
)

// DefaultPrefix is where the keys lie in etcd.
const DefaultPrefix = "leased/"

// Config says which etcd to use and how. Endpoints are required.
type Config struct {
	// Endpoints are the client URLs of the members, such as
	// "https://etcd-1:2379". Name all of them: a member that is not named is not
	// used.
	Endpoints []string
	// Username and Password authenticate where etcd has authentication enabled.
	// The user needs read and write permission on the prefix.
	Username string
	Password string
	// TLS is used for https endpoints; nil means the system's roots.
	TLS *tls.Config
	// Prefix is put before every key; empty means DefaultPrefix. Gateways that
	// share leases have the same one, and nobody else writes there.
	Prefix string
	// Observer is told of the expiries that this store recorded, each once among
	// all gateways. It must not block.
	Observer contract.ExpiryObserver
	// Logger takes what goes wrong in the background; nil means nowhere.
	Logger *slog.Logger
}

func (c *Config) validate() error {
	if len(c.Endpoints) == 0 {
		return errors.New("etcd: no endpoint is configured")
	}
	seen := map[string]bool{}
	for _, e := range c.Endpoints {
		if e == "" || strings.ContainsAny(e, " \t\r\n") {
			return fmt.Errorf("etcd: %q is not an endpoint", e)
		}
		if seen[e] {
			return fmt.Errorf("etcd: endpoint %q is named twice", e)
		}
		seen[e] = true
	}
	if (c.Username == "") != (c.Password == "") {
		return errors.New("etcd: a user name needs a password, and the reverse")
	}
	if strings.ContainsRune(c.Prefix, 0) {
		return errors.New("etcd: the prefix has a NUL")
	}
	return nil
}

// withDefaults returns c with what was left out filled in.
func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if !strings.HasSuffix(c.Prefix, "/") {
		c.Prefix += "/"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
