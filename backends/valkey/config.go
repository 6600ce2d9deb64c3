package valkey

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"leased/contract"
)

// Mode says what kind of deployment the addresses lead to.
type Mode uint8

// The modes.
const (
	// ModeAuto asks the first server that answers: a cluster or not. With a
	// SentinelMaster it is ModeSentinel.
	ModeAuto Mode = iota
	// ModeStandalone is one primary. Of several addresses the one that is a
	// primary is used.
	ModeStandalone
	// ModeSentinel asks the sentinels at the addresses for the primary.
	ModeSentinel
	// ModeCluster is a cluster; the addresses are some of its nodes.
	ModeCluster
)

// DefaultPrefix is what keys begin with unless configured otherwise.
const DefaultPrefix = "leased:"

const (
	maxPrefix          = 64
	maxReplicas        = 16
	defaultAckTimeout  = time.Second
	longestAckTimeout  = time.Minute
	defaultDialTimeout = 5 * time.Second
)

// Config says which server to use and how. Addresses is required.
type Config struct {
	// Addresses are host:port of servers, or of sentinels in ModeSentinel.
	Addresses []string
	Username  string
	Password  string
	// TLS is used for every connection when set.
	TLS  *tls.Config
	Mode Mode
	// SentinelMaster is the name under which the sentinels know the primary.
	SentinelMaster string
	// SentinelUsername and SentinelPassword are for the sentinels themselves.
	SentinelUsername string
	SentinelPassword string
	// ReplicaAcks is how many replicas must confirm a grant before it is
	// answered; a grant that they do not confirm within ReplicaTimeout (default
	// 1 s) is undone. 0 asks none.
	ReplicaAcks    int
	ReplicaTimeout time.Duration
	// Prefix is what all keys begin with; DefaultPrefix if empty. It lets several
	// installations share a server.
	Prefix string
	// Observer is told of the expiries that this store recorded, may be nil.
	Observer contract.ExpiryObserver
	// Logger is told of outages and of what they were; nil means silence.
	Logger *slog.Logger
}

// check returns the configuration with its defaults, or what is wrong with it.
func (c Config) check() (Config, error) {
	if len(c.Addresses) == 0 {
		return c, errors.New("valkey: no address is configured")
	}
	for _, a := range c.Addresses {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			return c, fmt.Errorf("valkey: address %q is not host:port", a)
		}
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if len(c.Prefix) > maxPrefix || strings.ContainsFunc(c.Prefix, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '{' || r == '}' || r == '*' || r == '?' || r == '[' || r == '\\'
	}) {
		return c, fmt.Errorf("valkey: prefix %q must be at most %d visible ASCII characters without braces or wildcards", c.Prefix, maxPrefix)
	}
	if c.SentinelMaster != "" && c.Mode == ModeAuto {
		c.Mode = ModeSentinel
	}
	if c.Mode > ModeCluster {
		return c, fmt.Errorf("valkey: unknown mode %d", c.Mode)
	}
	if (c.Mode == ModeSentinel) != (c.SentinelMaster != "") {
		return c, errors.New("valkey: a sentinel master belongs to the sentinel mode, which needs one")
	}
	if c.ReplicaAcks < 0 || c.ReplicaAcks > maxReplicas {
		return c, fmt.Errorf("valkey: replica acks must be 0 to %d", maxReplicas)
	}
	if c.ReplicaTimeout == 0 {
		c.ReplicaTimeout = defaultAckTimeout
	}
	if c.ReplicaTimeout < time.Millisecond || c.ReplicaTimeout > longestAckTimeout {
		return c, fmt.Errorf("valkey: replica timeout must be 1 ms to %v", longestAckTimeout)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
