package fault

import (
	"net"
	"strings"
	"testing"

	"leased/backends/valkey"
	"leased/test/proc"
)

// durable are the options of a server that loses nothing that it acknowledged.
func durable(more ...string) []string {
	return append([]string{"appendonly", "yes", "appendfsync", "always"}, more...)
}

func openValkey(t *testing.T, cfg valkey.Config) *valkey.Store {
	t.Helper()
	s, err := valkey.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valkeyAt(t *testing.T, address string) *valkey.Store {
	t.Helper()
	return openValkey(t, valkey.Config{Addresses: []string{address}})
}

func valkeyKilled(t *testing.T, _ string) *scene {
	t.Helper()
	v := proc.StartValkey(t, durable()...)
	return &scene{
		store:   valkeyAt(t, v.Addr),
		begin:   func(*testing.T) { v.Kill() },
		end:     func(t *testing.T) { t.Helper(); v.Start(t) },
		noticed: true,
	}
}

func valkeyPaused(t *testing.T, _ string) *scene {
	t.Helper()
	v := proc.StartValkey(t, durable()...)
	return &scene{
		store: valkeyAt(t, v.Addr),
		begin: func(t *testing.T) { t.Helper(); v.Pause(t) },
		end:   func(*testing.T) { v.Resume() },
	}
}

// valkeyTraffic is a server behind a network that does that to what passes.
func valkeyTraffic(traffic proc.Traffic) func(t *testing.T, ns string) *scene {
	return func(t *testing.T, _ string) *scene {
		t.Helper()
		p := proc.StartProxy(t, proc.StartValkey(t, durable()...).Addr)
		return &scene{
			store:   valkeyAt(t, p.Address),
			begin:   func(t *testing.T) { t.Helper(); p.Set(t, traffic) },
			end:     func(t *testing.T) { t.Helper(); p.Set(t, proc.Pass) },
			noticed: traffic == proc.Refuse,
		}
	}
}

// valkeyReplica leads the store's connections to a replica, as an address does
// that outlived a fail-over.
func valkeyReplica(t *testing.T, _ string) *scene {
	t.Helper()
	primary := proc.StartValkey(t, durable()...)
	replica := proc.StartReplica(t, primary)
	p := proc.StartProxy(t, primary.Addr)
	return &scene{
		store:   valkeyAt(t, p.Address),
		begin:   func(*testing.T) { p.Retarget(replica.Addr) },
		end:     func(*testing.T) { p.Retarget(primary.Addr) },
		noticed: true,
	}
}

// valkeyDemoted makes the server itself a replica, under the connections that
// are open.
func valkeyDemoted(t *testing.T, _ string) *scene {
	t.Helper()
	v := proc.StartValkey(t, durable()...)
	return &scene{
		store: valkeyAt(t, v.Addr),
		// Of a primary that is not there, so that it keeps its data.
		begin: func(t *testing.T) { t.Helper(); v.Do(t, "REPLICAOF", "127.0.0.1", "1") },
		end:   func(t *testing.T) { t.Helper(); v.Do(t, "REPLICAOF", "NO", "ONE") },
	}
}

// valkeyLoading restarts the server with data that it takes its time to read.
func valkeyLoading(t *testing.T, _ string) *scene {
	t.Helper()
	v := proc.StartValkey(t, durable("enable-debug-command", "local", "loading-process-events-interval-bytes", "1024",
		"key-load-delay", "300")...) // µs
	return &scene{
		store: valkeyAt(t, v.Addr),
		begin: func(t *testing.T) {
			t.Helper()
			v.Do(t, "DEBUG", "POPULATE", "50000", "foreign", "32")
			v.Do(t, "BGREWRITEAOF")
			v.Eventually(t, "the data is on disk", func(s string) bool {
				return strings.Contains(s, "aof_rewrite_in_progress:0") && strings.Contains(s, "aof_rewrite_scheduled:0")
			}, "INFO", "persistence")
			v.Kill()
			v.Launch(t)
			waitLoading(t, v)
		},
		end: func(t *testing.T) {
			t.Helper()
			v.Do(t, "CONFIG", "SET", "key-load-delay", "0")
			v.Eventually(t, "the data is read", func(s string) bool { return strings.Contains(s, "loading:0") }, "INFO", "persistence")
		},
	}
}

func waitLoading(t *testing.T, v *proc.Valkey) {
	t.Helper()
	proc.Succeeds(t, "the server listens", proc.Patience, func() error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", v.Addr)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	v.Eventually(t, "the server loads its data", func(s string) bool { return strings.Contains(s, "loading:1") }, "INFO", "persistence")
}

func valkeyFull(t *testing.T, _ string) *scene {
	t.Helper()
	v := proc.StartValkey(t, durable()...)
	return &scene{
		store: valkeyAt(t, v.Addr),
		begin: func(t *testing.T) { t.Helper(); v.Do(t, "CONFIG", "SET", "maxmemory", "1") },
		end:   func(t *testing.T) { t.Helper(); v.Do(t, "CONFIG", "SET", "maxmemory", "0") },
	}
}

func valkeyForbidden(t *testing.T, _ string) *scene {
	t.Helper()
	v := proc.StartValkey(t, durable()...)
	v.Do(t, "ACL", "SETUSER", "leased", "on", ">secret", "~*", "&*", "+@all")
	return &scene{
		store: openValkey(t, valkey.Config{Addresses: []string{v.Addr}, Username: "leased", Password: "secret"}),
		begin: func(t *testing.T) { t.Helper(); v.Do(t, "ACL", "SETUSER", "leased", "resetkeys") },
		end:   func(t *testing.T) { t.Helper(); v.Do(t, "ACL", "SETUSER", "leased", "~*") },
	}
}

// valkeyForeign puts values of another type where the store's are.
func valkeyForeign(t *testing.T, _ string) *scene {
	t.Helper()
	v := proc.StartValkey(t, durable()...)
	return &scene{
		store: valkeyAt(t, v.Addr),
		begin: func(t *testing.T) {
			t.Helper()
			v.Do(t, "EVAL", `for _, key in ipairs(redis.call('KEYS', '*{*}*')) do
				local kind = redis.call('TYPE', key).ok
				redis.call('RENAME', key, 'kept' .. key)
				local write = kind == 'list' and 'SET' or 'RPUSH'
				redis.call(write, key, 'x')
			end`, "0")
		},
		end: func(t *testing.T) {
			t.Helper()
			v.Do(t, "EVAL", `for _, key in ipairs(redis.call('KEYS', 'kept*')) do
				redis.call('RENAME', key, string.sub(key, 5))
			end`, "0")
		},
	}
}
