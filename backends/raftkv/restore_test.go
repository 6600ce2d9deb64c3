package raftkv_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"leased/backends/raftkv"
	"leased/contract"
)

func restoreKey(name string) contract.Key {
	key, err := contract.Key{
		Tenant: "acme", Target: contract.Target{Type: contract.TargetName, ID: name}, Actor: "worker",
	}.Normalize()
	if err != nil {
		panic(err)
	}
	return key
}

func ask(ns, id, key string) *contract.AcquireRequest {
	return &contract.AcquireRequest{
		Namespace: ns, RequestID: id, Owner: "alice", Instance: "i", Key: restoreKey(key), TTL: time.Hour, MaxLifetime: time.Hour,
		Retention: contract.Retention{Idempotency: time.Hour, History: time.Hour, HistoryPerKey: 10},
	}
}

func acquired(t *testing.T, s contract.Store, r *contract.AcquireRequest) *contract.Lease {
	t.Helper()
	res, err := s.Acquire(t.Context(), r)
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire %s: got %v, error %v", r.RequestID, res.Outcome, err)
	}
	return res.Lease
}

func backUp(t *testing.T, f *raftkv.Forwarder) (*raftkv.BackupHead, []byte) {
	t.Helper()
	head, write, err := f.Backup(t.Context(), "the-cluster")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := write(&out); err != nil {
		t.Fatal(err)
	}
	return head, out.Bytes()
}

// forwarder returns the store of the follower.
func (p *pair) forwarder(t *testing.T) *raftkv.Forwarder {
	t.Helper()
	f := p.engines[1].Forwarder()
	t.Cleanup(func() { _ = f.Close(context.WithoutCancel(t.Context())) })
	return f
}

func TestForwarder_Restore(t *testing.T) {
	p := newPair(t)
	f := p.forwarder(t)
	held := acquired(t, f, ask("default", "r1", "held"))
	head, backup := backUp(t, f)
	if head.ClusterID != "the-cluster" || head.Index == 0 {
		t.Errorf("got the head %+v", head)
	}

	// What the backup does not know.
	later := acquired(t, f, ask("default", "r2", "later"))
	acquired(t, f, ask("elsewhere", "r3", "later"))
	p.offset.Add(int64(10 * time.Minute)) // the clock goes on, and not back
	wait := ask("default", "r4", "held")
	wait.Owner, wait.Wait = "bob", time.Minute
	waited := make(chan error, 1)
	go func() {
		res, err := f.Acquire(t.Context(), wait)
		if err == nil && (res.Outcome != contract.OutcomeAcquired || res.Lease.Token <= later.Token) {
			err = fmt.Errorf("got %+v", res)
		}
		waited <- err
	}()
	for queued := 0; queued == 0; {
		res, err := f.GetKey(t.Context(), &contract.GetKeyRequest{Namespace: "default", KeyID: held.KeyID})
		if err != nil {
			t.Fatal(err)
		}
		queued = res.Queue.Length
	}

	before := time.Now()
	got, err := f.Restore(t.Context(), bytes.NewReader(backup))
	if err != nil {
		t.Fatal(err)
	}
	if got.Ended != 1 || got.Backup.ClusterID != "the-cluster" || got.Floor < contract.Token(before.UnixMicro()) {
		t.Errorf("got %+v, want one ended lease and a floor of at least %d", got, before.UnixMicro())
	}
	// The waiter was told, asked again by itself, and got the key that is free now.
	if err := <-waited; err != nil {
		t.Errorf("the waiter from before the restore: %v", err)
	}
	for _, i := range []int{0, 1} { // the leader and the follower
		checkRestored(t, p.handleAt(i), held, later)
	}
	// Tokens are higher in every namespace, also one that the backup does not know.
	for _, ns := range []string{"default", "elsewhere", "new"} {
		l := acquired(t, f, ask(ns, "r9", "fresh"))
		if l.Token <= got.Floor || l.Token <= later.Token {
			t.Errorf("namespace %s: token %d, want one above %d", ns, l.Token, got.Floor)
		}
	}
	// A lease that is granted now lives its TTL: the leader's clock goes on.
	short := ask("default", "r10", "short")
	short.TTL = time.Minute
	l := acquired(t, f, short)
	p.offset.Add(int64(50 * time.Second))
	checkState(t, f, l.ID, contract.StateActive)
	p.offset.Add(int64(20 * time.Second))
	checkState(t, f, l.ID, contract.StateExpired)
}

func checkState(t *testing.T, s contract.Store, id contract.LeaseID, want contract.State) {
	t.Helper()
	res, err := s.Get(t.Context(), &contract.GetRequest{Namespace: "default", LeaseID: id})
	if err != nil || res.Lease.State != want {
		t.Errorf("got %+v, error %v, want it %v", res.Lease, err, want)
	}
}

func checkRestored(t *testing.T, s contract.Store, held, later *contract.Lease) {
	t.Helper()
	res, err := s.Get(t.Context(), &contract.GetRequest{Namespace: "default", LeaseID: held.ID})
	if err != nil || res.Outcome != contract.OutcomeFound || res.Lease.State != contract.StateExpired || !strings.Contains(res.Lease.Reason, "restored") {
		t.Errorf("the restored lease: got %+v, error %v, want it expired with the reason", res, err)
	}
	res, err = s.Get(t.Context(), &contract.GetRequest{Namespace: "default", LeaseID: later.ID})
	if err != nil || res.Outcome != contract.OutcomeNotFound {
		t.Errorf("a lease from after the backup: got %v, error %v, want not_found", res.Outcome, err)
	}
	res, err = s.Acquire(t.Context(), ask("default", "r1", "held"))
	if err != nil || res.Outcome != contract.OutcomeEndedExpired || !res.Replayed {
		t.Errorf("the request id of the restored lease: got %v, error %v, want ended_expired", res.Outcome, err)
	}
	events, err := s.History(t.Context(), &contract.HistoryRequest{Namespace: "default", KeyID: held.KeyID})
	if err != nil || len(events.Events) != 3 {
		t.Fatalf("history: got %d events, error %v, want the new grant, the expiry and the old grant", len(events.Events), err)
	}
	if e := events.Events[1]; e.Kind != contract.EventExpired || e.LeaseID != held.ID || e.ID <= events.Events[2].ID || e.ID >= events.Events[0].ID {
		t.Errorf("got the event %+v, want the expiry of the restored lease between the two grants", e)
	}
}

func TestForwarder_Restore_damaged(t *testing.T) {
	p := newPair(t)
	f := p.forwarder(t)
	held := acquired(t, f, ask("default", "r1", "held"))
	_, backup := backUp(t, f)
	damaged := map[string][]byte{
		"empty": nil, "cut": backup[:len(backup)-1], "half": backup[:len(backup)/2], "more": append(bytes.Clone(backup), 0),
		"something else": []byte("a file of another program, which is long enough"),
	}
	for at := 0; at < len(backup); at += 37 {
		b := bytes.Clone(backup)
		b[at] ^= 0x20
		damaged[fmt.Sprint("byte ", at)] = b
	}
	for name, b := range damaged {
		_, err := f.Restore(t.Context(), bytes.NewReader(b))
		if contract.CodeOf(err) != contract.CodeInvalid {
			t.Errorf("%s: got error %v, want invalid", name, err)
		}
	}
	res, err := f.Get(t.Context(), &contract.GetRequest{Namespace: "default", LeaseID: held.ID})
	if err != nil || res.Lease.State != contract.StateActive {
		t.Errorf("after all of them: got %+v, error %v, want the lease active", res, err)
	}
}
