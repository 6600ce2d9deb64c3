package etcd

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// sessionMod returns the revision at which the session was written last, or 0.
func (s *Store) sessionMod(ctx context.Context, t *testing.T, id string) int64 {
	t.Helper()
	resp, fail := s.pool.read(ctx, clientv3.OpGet(s.names.session(id)))
	if fail != nil {
		t.Fatal(fail)
	}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		return kv.ModRevision
	}
	return 0
}

// TestOthers_judge ends the session of a gateway that was silent only if it is
// still as it was seen: a beat may have come since that was not told yet.
func TestOthers_judge(t *testing.T) {
	s := openInside(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	other, _, fail := s.pool.grant(ctx, 60)
	if fail != nil {
		t.Fatal(fail)
	}
	beat := func() int64 {
		t.Helper()
		if _, fail := s.pool.txn(ctx, nil, []clientv3.Op{clientv3.OpPut(s.names.session("other"), "1", clientv3.WithLease(other))}); fail != nil {
			t.Fatal(fail)
		}
		return s.sessionMod(ctx, t, "other")
	}
	seen := beat()
	now := beat()
	o := &others{s: s, seen: map[string]sighting{"other": {time.Now().Add(-time.Hour), seen}}}
	if o.judge(ctx, s); s.sessionMod(ctx, t, "other") != now {
		t.Error("a gateway that has beaten since was taken for gone")
	}
	o.seen["other"] = sighting{time.Now().Add(-deadAfter / 2), now}
	if o.judge(ctx, s); s.sessionMod(ctx, t, "other") != now {
		t.Error("a gateway that was heard of a moment ago was taken for gone")
	}
	o.seen["other"] = sighting{time.Now().Add(-2 * deadAfter), now}
	if o.judge(ctx, s); s.sessionMod(ctx, t, "other") != 0 {
		t.Error("a gateway that was silent for long is taken for present")
	}
}

// TestPresence_beat_judged has others take a gateway for gone: its next beat does
// not bring the session back, by which places would be present again whose turn has
// passed; it comes back under another name.
func TestPresence_beat_judged(t *testing.T) {
	s := openInside(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	id, err := s.presence.ensure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, fail := s.pool.txn(ctx, nil, []clientv3.Op{clientv3.OpDelete(s.names.session(id))}); fail != nil {
		t.Fatal(fail)
	}
	s.presence.beat(ctx, 1)
	if s.sessionMod(ctx, t, id) != 0 {
		t.Error("the session is there again")
	}
	if again, err := s.presence.ensure(ctx); err != nil || again == id {
		t.Errorf("got session %s again, error %v, want another one", again, err)
	}
}

// TestPresence_idle: a session that has been of no use for long is nobody's any more
// before it is ended. A call that comes just then would have its place in its name,
// and be away as soon as it has it.
func TestPresence_idle(t *testing.T) {
	s := openInside(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	id, err := s.presence.ensure(ctx)
	if err != nil {
		t.Fatal(err)
	}
	beats := lingerBeats - 1
	old, lease, over := s.presence.idle(&beats)
	if !over || old != id {
		t.Fatalf("got session %q, over %v, want %q to be of no use", old, over, id)
	}
	again, err := s.presence.ensure(ctx) // a call comes
	if err != nil {
		t.Fatal(err)
	}
	s.presence.end(old, lease)
	if again == id || s.sessionMod(ctx, t, again) == 0 || s.sessionMod(ctx, t, id) != 0 {
		t.Errorf("the call got session %s, want another one than %s, which is ended", again, id)
	}
}
