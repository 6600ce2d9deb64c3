package raftkv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"leased/backends/raftkv"
	"leased/contract"
	"leased/test/proc"
)

// failing is a log that fails at one command, counted from 1, and calls before it.
type failing struct {
	raftkv.Proposer

	fsm    *raftkv.FSM
	count  atomic.Int64
	at     atomic.Int64 // 0 for never
	before func()
	err    error
}

func (f *failing) Propose(ctx context.Context, command []byte) (any, error) {
	if command[0] == raftkv.CommandVersion { // a part of a restore
		if n := f.count.Add(1); n == f.at.Load() {
			if f.before != nil {
				f.before()
			}
			if f.err != nil {
				return nil, f.err
			}
		}
	}
	return f.Proposer.Propose(ctx, command)
}

// lostError says that the command may have been applied.
type lostError struct{}

func (lostError) Error() string   { return "lost" }
func (lostError) Submitted() bool { return true }

func newFailing(t *testing.T) (*pair, *failing) {
	t.Helper()
	log := new(failing)
	p := newPair(t, func(o *raftkv.Options) {
		log.Proposer, log.fsm = o.Proposer, o.FSM
		o.Proposer = log
	})
	return p, log
}

// TestForwarder_Restore_fails: whichever part of a restore fails, however, the
// answer says what came of it, and another restore succeeds.
func TestForwarder_Restore_fails(t *testing.T) {
	p, log := newFailing(t)
	f := p.forwarder(t)
	acquired(t, f, ask("default", "r1", "of the backup"))
	_, backup := backUp(t, f)
	log.at.Store(-1)
	if _, err := f.Restore(t.Context(), bytes.NewReader(backup)); err != nil {
		t.Fatal(err)
	}
	parts := log.count.Load()
	if parts < 3 {
		t.Fatalf("the restore took %d entries, want a first, a last and one between at least", parts)
	}
	for at := int64(1); at <= parts; at++ {
		live := acquired(t, f, ask("default", fmt.Sprint("live-", at), "live"))
		log.count.Store(0)
		log.at.Store(at)
		log.err = lostError{}
		_, err := f.Restore(t.Context(), bytes.NewReader(backup))
		want := contract.CodeUnavailable
		if at == parts {
			want = contract.CodeOutcomeUnknown
		}
		if contract.CodeOf(err) != want {
			t.Errorf("the answer to entry %d of %d is lost: got error %v, want %v", at, parts, err, want)
		}
		checkState(t, f, live.ID, contract.StateActive)
		proc.Until(t, "the restore is given up", proc.Patience, func() bool { return !log.fsm.SnapshotBlocked() })
		if _, err := f.Release(t.Context(), &contract.ReleaseRequest{
			Namespace: "default", RequestID: live.ID.String(), Owner: "alice", Instance: "i", LeaseID: live.ID, Token: live.Token, Retention: ask("", "", "live").Retention,
		}); err != nil {
			t.Fatal(err)
		}
	}
	log.at.Store(0)
	if _, err := f.Restore(t.Context(), bytes.NewReader(backup)); err != nil {
		t.Errorf("a restore after those that failed: %v", err)
	}
}

// TestForwarder_Restore_deadline: a restore whose caller goes away in the middle
// changes nothing, and says so.
func TestForwarder_Restore_deadline(t *testing.T) {
	p, log := newFailing(t)
	f := p.engines[0].Forwarder()
	t.Cleanup(func() { _ = f.Close(context.WithoutCancel(t.Context())) })
	live := acquired(t, f, ask("default", "r1", "live"))
	_, backup := backUp(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	log.before = cancel
	log.at.Store(2)
	_, err := f.Restore(ctx, bytes.NewReader(backup))
	if code := contract.CodeOf(err); code == contract.CodeOutcomeUnknown || err == nil {
		t.Errorf("got error %v, want one that says that nothing was restored", err)
	}
	checkState(t, f, live.ID, contract.StateActive)
	proc.Until(t, "the restore is given up", proc.Patience, func() bool { return !log.fsm.SnapshotBlocked() })
}

// older is a cluster with a member of an earlier release.
type older struct{ asked int }

func (o *older) Applies(_ context.Context, version int) error {
	o.asked = version
	return errors.New("node n3 runs an earlier release")
}

// TestForwarder_Restore_olderMember: entries that a member would stop at are not
// written.
func TestForwarder_Restore_olderMember(t *testing.T) {
	members := new(older)
	log := new(failing)
	p := newPair(t, func(o *raftkv.Options) {
		log.Proposer, o.Proposer, o.Members = o.Proposer, log, members
	})
	f := p.forwarder(t)
	_, backup := backUp(t, f)
	_, err := f.Restore(t.Context(), bytes.NewReader(backup))
	if contract.CodeOf(err) != contract.CodeUnavailable || log.count.Load() != 0 || members.asked != raftkv.CommandVersion {
		t.Errorf("got error %v and %d entries, asked for version %d; want unavailable, none, and %d",
			err, log.count.Load(), members.asked, raftkv.CommandVersion)
	}
}
