package valkey_test

import (
	"strings"
	"testing"
	"time"

	"leased/backends/valkey"
	"leased/contract"
	"leased/test/proc"
)

// TestReplicaAcks_trouble has one replica, which must confirm and is stopped.
func TestReplicaAcks_trouble(t *testing.T) {
	t.Parallel()
	primary := proc.StartValkey(t)
	replica := proc.StartReplica(t, primary)
	b := on(t, primary, valkey.Config{Addresses: []string{primary.Addr}, ReplicaAcks: 1, ReplicaTimeout: time.Second})
	primary.Do(t, "SET", "first", "1")
	replica.Eventually(t, "the replica confirms", func(s string) bool { return s == "1" }, "EXISTS", "first")
	held := b.grant("held")
	replica.Pause(t)

	// A copy is told nothing that the replica did not confirm, and does not keep
	// the first from being undone.
	r := b.acquireOf("copied")
	first := make(chan error, 1)
	go func() {
		_, err := b.store.Acquire(b.within(proc.Patience), r)
		first <- err
	}()
	b.eventually("the first copy was granted", func() bool { return b.health().ActiveLeases == 2 })
	res, err := b.store.Acquire(b.within(proc.Patience), r)
	if err == nil && res.Outcome == contract.OutcomeAcquired {
		t.Errorf("a copy was told of a grant that no replica confirmed")
	}
	if err := <-first; contract.CodeOf(err) != contract.CodeUnavailable {
		t.Errorf("the first copy: got %v, want unavailable", err)
	}

	// Refusals wait for nobody: one that waited for the replica had no answer in time.
	slow := on(t, primary, valkey.Config{Addresses: []string{primary.Addr}, ReplicaAcks: 1, ReplicaTimeout: time.Minute})
	res, err = slow.store.Acquire(b.within(proc.Patience), b.acquireOf("held"))
	if err != nil || res.Outcome != contract.OutcomeConflict {
		t.Errorf("conflict: got %v, error %v", res.Outcome, err)
	}

	// The deadline holds though the server cannot be asked to undo.
	const limit = 3 * time.Second
	late := b.acquireOf("late")
	began := time.Now()
	told := make(chan error, 1)
	go func() {
		_, err := slow.store.Acquire(b.within(limit), late)
		told <- err
	}()
	primary.Eventually(t, "the grant is made, the replica is waited for", func(s string) bool {
		return strings.Contains(s, "blocked_clients:1\r")
	}, "INFO", "clients")
	primary.Pause(t)
	err = <-told
	if took := time.Since(began); contract.CodeOf(err) != contract.CodeOutcomeUnknown || took > limit+contract.AnswerSlack+stall {
		t.Errorf("a server that stops before the replica confirmed: got %v after %v, want outcome_unknown", err, took)
	}
	primary.Resume()
	b.eventually("the grant is undone in the background", func() bool { return b.health().ActiveLeases == 1 })

	replica.Resume()
	b.eventually("a copy of a confirmed grant is told of it", func() bool {
		res, err := b.store.Acquire(b.within(proc.Patience), r)
		return err == nil && res.Outcome == contract.OutcomeAcquired && res.Lease.Token > held.Token && res.Replayed
	})
}
