package valkey_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leased/backends/valkey"
	"leased/contract"
	"leased/test/proc"
)

func TestFaults_ServerDown(t *testing.T) {
	t.Parallel()
	b := newBench(t, durable()...)
	held := b.grant("held")
	b.server.Kill()
	b.unreachable(b.store, held)
	b.expect("server down", b.mutations(held), proc.Patience, contract.CodeUnavailable)
	b.expect("server down", b.reads(held), proc.Patience, contract.CodeUnavailable)
	if h := b.health(); h.Ready || h.Detail == "" {
		t.Errorf("health of a store whose server is down: %+v", h)
	}
	b.server.Start(t)
	b.serves()
	b.expect("server back", b.reads(held), proc.Patience, 0)
}

func TestFaults_NeverUp(t *testing.T) {
	t.Parallel()
	v := proc.StartValkey(t)
	v.Kill()
	b := on(t, v, valkey.Config{Addresses: []string{v.Addr}})
	_, err := b.store.Acquire(b.within(proc.Patience), b.acquireOf("key"))
	if contract.CodeOf(err) != contract.CodeUnavailable {
		t.Errorf("acquire before there was a server: got %v, want unavailable", err)
	}
	v.Start(t)
	b.serves()
}

func TestFaults_Paused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held := b.grant("held")
	reads := b.reads(held)
	mutations := b.mutations(held)
	retry := b.acquireOf("late")
	// What is to be in doubt has to be sent within it, also by a busy machine, and the
	// connections have to be there: a pause of 3 s ends them, so that all is sent at
	// once.
	const limit = 1500 * time.Millisecond
	pause := func() {
		for range 30 {
			_ = reads["get"](b.within(proc.Patience))
		}
		_ = mutations["wait"](b.within(300 * time.Millisecond))
		b.server.Pause(t)
	}
	pause()
	b.expectAtOnce("paused", reads, limit, contract.CodeTimeout)
	b.server.Resume()
	b.serves()
	pause()
	mutations["late"] = func(ctx context.Context) error {
		_, err := b.store.Acquire(ctx, retry)
		return err
	}
	b.expectAtOnce("paused", mutations, limit, contract.CodeOutcomeUnknown)
	b.server.Resume()
	b.serves()
	res, err := b.store.Acquire(b.within(proc.Patience), retry)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Errorf("the same request id after the pause: got %v, error %v, want acquired", res.Outcome, err)
	}
}

func TestFaults_KilledDuringCall(t *testing.T) {
	t.Parallel()
	v := proc.StartValkey(t, durable()...)
	proxy := proc.StartProxy(t, v.Addr)
	b := on(t, v, valkey.Config{Addresses: []string{proxy.Address}})
	held := b.grant("held")
	mutations := b.mutations(held)
	// One that waits tries again until its wait is over. What the others send
	// holds these.
	for name, mark := range map[string]string{
		"acquire": "acquire-", "renew": "renew-", "bulk": "renew-", "release": "release-", "revoke": "revoke-", "floor": fmt.Sprint(lowFloor),
	} {
		for range 30 { // so that every connection is there
			_ = b.reads(held)["get"](b.within(proc.Patience))
		}
		b.server.Pause(t)
		sent := proxy.Expect(mark)
		done := make(chan error, 1)
		go func() { done <- mutations[name](b.within(proc.Patience)) }()
		select {
		case <-sent:
		case err := <-done:
			t.Fatalf("%s was not sent: %v", name, err)
		}
		b.server.Kill()
		if err := <-done; contract.CodeOf(err) != contract.CodeOutcomeUnknown {
			t.Errorf("%s, server killed: got %v, want outcome_unknown", name, err)
		}
		b.server.Start(t)
		b.serves()
	}
}

func TestFaults_Loading(t *testing.T) {
	t.Parallel()
	b := newBench(t, "appendonly", "no")
	held := b.grant("held")
	for i := range 40 {
		b.grant(fmt.Sprint("more-", i))
	}
	b.server.Do(t, "SAVE")
	b.server.Kill()
	slow := proc.StartValkey(t)
	slow.Kill()
	data, err := os.ReadFile(filepath.Join(b.server.Dir, "dump.rdb"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(slow.Dir, "dump.rdb"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	slow.Options("key-load-delay", "20000", "loading-process-events-interval-bytes", "1024")
	c := on(t, slow, valkey.Config{Addresses: []string{slow.Addr}})
	slow.Launch(t)
	var loading bool
	c.eventually("the server has loaded", func() bool {
		err := c.reads(held)["get"](c.within(time.Second))
		if err != nil && strings.Contains(err.Error(), "LOADING") {
			loading = true
			if contract.CodeOf(err) != contract.CodeUnavailable {
				t.Errorf("get while the server loads: got %v, want unavailable", err)
			}
		}
		return err == nil
	})
	if !loading {
		t.Errorf("the server was never seen loading")
	}
	c.serves()
}

func TestFaults_OutOfMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	held, other := b.grant("held"), b.grant("other")
	b.server.Do(t, "CONFIG", "SET", "maxmemory", "1mb")
	b.expect("out of memory", calls{"acquire": b.mutations(held)["acquire"]}, proc.Patience, contract.CodeUnavailable)
	if h := b.health(); h.Ready {
		t.Errorf("health of a store that can grant nothing: ready")
	}
	for _, op := range []string{"renew", "release"} {
		b.expect("out of memory", calls{op: b.mutations(held)[op]}, proc.Patience, 0)
	}
	b.expect("out of memory", calls{"revoke": b.mutations(other)["revoke"]}, proc.Patience, 0)
	b.expect("out of memory", b.reads(held), proc.Patience, 0)
	b.server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	b.serves()
}

func TestFaults_Refusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ harm, mend []string }{
		"too few replicas": {
			[]string{"CONFIG", "SET", "min-replicas-to-write", "1"}, []string{"CONFIG", "SET", "min-replicas-to-write", "0"},
		},
		"read-only replica": {
			[]string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"},
		},
		"no permission": {
			[]string{"ACL", "SETUSER", "default", "-evalsha", "-eval"}, []string{"ACL", "SETUSER", "default", "+@all"},
		},
		"no permission within scripts": {
			[]string{"ACL", "SETUSER", "default", "-get", "-set"}, []string{"ACL", "SETUSER", "default", "+@all"},
		},
		"no permission for the keys": {
			[]string{"ACL", "SETUSER", "default", "resetkeys", "~other*"}, []string{"ACL", "SETUSER", "default", "~*"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			held := b.grant("held")
			b.server.Do(t, c.harm...)
			if name == "no permission within scripts" {
				// A script that was on its way may have been stopped anywhere.
				b.eventually("it is noticed", func() bool {
					return contract.CodeOf(b.mutations(held)["floor"](b.within(proc.Patience))) == contract.CodeUnavailable
				})
			}
			b.expect(name, b.mutations(held), proc.Patience, contract.CodeUnavailable)
			if h := b.health(); h.Ready {
				t.Errorf("health: ready")
			}
			b.server.Do(t, c.mend...)
			b.serves()
		})
	}
}

// TestFaults_NoticedRecovery holds the store to noticing soon that its server
// serves again when nothing but a look at the server can tell. The first round
// ends with a look, so that each later one meets the same wait for the next.
func TestFaults_NoticedRecovery(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	granted := func() (bool, error) {
		res, err := b.store.Acquire(b.within(proc.Patience), b.acquireOf(fmt.Sprint("key-", b.ids.Add(1))))
		return err == nil && res.Outcome == contract.OutcomeAcquired, err
	}
	for round := range 4 {
		b.server.Do(t, "ACL", "SETUSER", "default", "resetkeys", "~other*")
		b.eventually("it is noticed", func() bool {
			_, err := granted()
			return contract.CodeOf(err) == contract.CodeUnavailable && !b.health().Ready
		})
		b.server.Do(t, "ACL", "SETUSER", "default", "~*")
		began := time.Now()
		b.eventually("it serves again", func() bool { ok, _ := granted(); return ok })
		if took := time.Since(began); took > recoverWithin*3/4 {
			t.Errorf("round %d: it serves %v after it could, want at most %v", round, took, recoverWithin*3/4)
		}
	}
}

func TestFaults_CannotPersist(t *testing.T) {
	t.Parallel()
	b := newBench(t, "dbfilename", "taken", "save", "3600 1000000")
	held := b.grant("held")
	// A folder that is not empty stands where the snapshot should be.
	if err := os.MkdirAll(filepath.Join(b.server.Dir, "taken", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.server.Try("BGSAVE")
	b.server.Eventually(t, "the snapshot failed", func(s string) bool {
		return strings.Contains(s, "rdb_last_bgsave_status:err")
	}, "INFO", "persistence")
	b.expect("cannot persist", b.mutations(held), proc.Patience, contract.CodeUnavailable)
	if h := b.health(); h.Ready {
		t.Errorf("health: ready")
	}
	b.server.Do(t, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
	b.serves()
}

func TestFaults_Busy(t *testing.T) {
	t.Parallel()
	b := newBench(t, "busy-reply-threshold", "50")
	held := b.grant("held")
	go func() { b.server.Try("EVAL", "while true do end", "0") }()
	b.eventually("the server is busy", func() bool {
		err := b.reads(held)["get"](b.within(proc.Patience))
		return err != nil && strings.Contains(err.Error(), "BUSY")
	})
	b.expect("busy", b.mutations(held), proc.Patience, contract.CodeUnavailable)
	b.server.Do(t, "SCRIPT", "KILL")
	b.serves()
}

func TestFaults_WrongCredentials(t *testing.T) {
	t.Parallel()
	v := proc.StartValkey(t, "requirepass", "right")
	for _, password := range []string{"", "wrong"} {
		b := on(t, v, valkey.Config{Addresses: []string{v.Addr}, Password: password})
		_, err := b.store.Acquire(b.within(proc.Patience), b.acquireOf("key"))
		if contract.CodeOf(err) != contract.CodeUnavailable {
			t.Errorf("acquire with password %q: got %v, want unavailable", password, err)
		}
		if h := b.health(); h.Ready || strings.Contains(h.Detail, v.Addr) {
			t.Errorf("health with password %q: %+v", password, h)
		}
	}
	on(t, v, valkey.Config{Addresses: []string{v.Addr}, Password: "right"}).grant("key")
}

func TestFaults_ForeignHand(t *testing.T) {
	t.Parallel()
	for name, set := range map[string][]string{
		"another type":   {"LPUSH", "", "x"},
		"garbage":        {"SET", "", "garbage"},
		"a new version":  {"SET", "", "\x02" + strings.Repeat("x", 400)},
		"another record": {"COPY", "other", "", "REPLACE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			held, other := b.grant("held"), b.grant("other")
			key := func(l *contract.Lease) string { return b.store.Base(l.Namespace) + ":k:" + l.KeyID.String() }
			args := append([]string(nil), set...)
			for i := range args {
				switch args[i] {
				case "":
					args[i] = key(held)
				case "other":
					args[i] = key(other)
				}
			}
			b.server.Do(t, "DEL", key(held))
			b.server.Do(t, args...)
			reads := b.reads(held)
			for _, read := range []string{"check", "get key"} {
				b.expect(name, calls{read: reads[read]}, proc.Patience, contract.CodeInternal)
			}
			_, err := b.store.Acquire(b.within(proc.Patience), b.acquireOf("held"))
			if contract.CodeOf(err) != contract.CodeInternal {
				t.Errorf("acquire over it: got %v, want internal", err)
			}
			b.grant("third") // others go on
		})
	}
}

func TestFaults_EvictionPolicy(t *testing.T) {
	t.Parallel()
	b := newBench(t, "maxmemory-policy", "volatile-lru")
	acquire := calls{"acquire": func(ctx context.Context) error {
		_, err := b.store.Acquire(ctx, b.acquireOf("key"))
		return err
	}}
	b.expect("volatile-lru", acquire, proc.Patience, contract.CodeUnavailable)
	if h := b.health(); h.Ready || !strings.Contains(h.Detail, "volatile-lru") {
		t.Errorf("health with volatile-lru: %+v", h)
	}
	b.server.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	b.eventually("the policy is seen to be right", func() bool { return b.health().Ready })
	held := b.grant("held")
	// Also without the right to read the configuration, and while it runs.
	b.server.Do(t, "ACL", "SETUSER", "default", "-config")
	admin := []string{"--user", "admin", "--pass", "admin", "CONFIG", "SET", "maxmemory-policy", "allkeys-lru"}
	b.server.Try("ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
	b.server.Do(t, admin...)
	b.eventually("the wrong policy is noticed", func() bool { return !b.health().Ready })
	b.expect("allkeys-lru", acquire, proc.Patience, contract.CodeUnavailable)
	b.expect("allkeys-lru", calls{"release": b.mutations(held)["release"]}, proc.Patience, 0)
}
