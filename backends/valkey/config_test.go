package valkey_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"leased/backends/valkey"
)

func TestOpen_badConfiguration(t *testing.T) {
	t.Parallel()
	good := []string{"127.0.0.1:1"}
	for what, cfg := range map[string]valkey.Config{
		"no address":                    {},
		"an address without a port":     {Addresses: []string{"localhost"}},
		"a prefix with a brace":         {Addresses: good, Prefix: "a{b"},
		"a prefix with a wildcard":      {Addresses: good, Prefix: "a*"},
		"a prefix with white space":     {Addresses: good, Prefix: "a b"},
		"a long prefix":                 {Addresses: good, Prefix: strings.Repeat("x", 65)},
		"an unknown mode":               {Addresses: good, Mode: 99},
		"a sentinel without a master":   {Addresses: good, Mode: valkey.ModeSentinel},
		"a master without the sentinel": {Addresses: good, Mode: valkey.ModeCluster, SentinelMaster: "m"},
		"negative acks":                 {Addresses: good, ReplicaAcks: -1},
		"many acks":                     {Addresses: good, ReplicaAcks: 99},
		"a negative timeout":            {Addresses: good, ReplicaTimeout: -time.Second},
	} {
		if s, err := valkey.Open(context.Background(), cfg); err == nil {
			_ = s.Close(context.Background())
			t.Errorf("%s: no error", what)
		}
	}
}

func TestOpen_serverDown(t *testing.T) {
	t.Parallel()
	s, err := valkey.Open(context.Background(), valkey.Config{Addresses: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatalf("open while the server is down: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}
