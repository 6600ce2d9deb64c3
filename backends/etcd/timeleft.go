package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// What is left of a lease is etcd's to say, and it says it in whole seconds. The
// wall clocks of the gateways give the rest, as far as they agree with it.

// timed returns an active lease with what is left of it. That is told by the
// wall clock, unless it says that nothing is: then etcd's leader has changed and
// started the TTL afresh, or the clock of the gateway that wrote it was not like
// this one's, and etcd is asked.
func (s *Store) timed(ctx context.Context, st *state, rec *record, t int64) *contract.Lease {
	l := st.shown(rec, t)
	if rec.State.Terminal() || rec.Expires > t {
		return l
	}
	seconds, fail := s.pool.timeToLive(ctx, clientv3.LeaseID(rec.Lease))
	if fail == nil {
		l.ExpiresIn = min(max(l.ExpiresIn, time.Duration(seconds-spareTTL)*time.Second), rec.TTL)
	}
	return l
}

// lateError tells of a grant, or a renewal, that is stored, but of which etcd began
// to count the TTL so long before that it may end early. Who meets it reads what
// became of it, as one whose outcome is not known, and starts the TTL again.
type lateError struct{}

func (lateError) Error() string { return "the TTL was started too long before it was granted" }

// late tells that etcd began to count the TTL of what is stored now longer ago than
// the etcd lease has more than it.
func late(fresh time.Time) bool { return time.Since(fresh) > spareTTL*time.Second }

// restart starts the TTL of an active lease again for the call that was granted it,
// or renewed it, and did not hear of it in time: it counts from the grant on, which
// was later than etcd began to count. It returns what is left of it.
func (s *Store) restart(ctx context.Context, r *record) (time.Duration, error) {
	began := time.Now()
	fail := s.pool.keepAlive(ctx, clientv3.LeaseID(r.Lease))
	switch {
	case fail == nil:
		return clamp(r.TTL-time.Since(began), time.Millisecond, r.TTL), nil
	case isErr(fail.err, rpctypes.ErrLeaseNotFound):
		return 0, undoneError{} // it is over
	}
	return 0, writeError(ctx, fail, true)
}

// leftOf returns what is left of an active lease, of which the wall clock says so
// much, never more than etcd has it: whoever trusts it must not meet the next
// holder. When etcd does not say it is next to nothing.
func (s *Store) leftOf(ctx context.Context, r *record, wall time.Duration) time.Duration {
	left, fail := s.secondsOf(ctx, r.Lease)
	if fail != nil {
		return time.Millisecond
	}
	left = clamp(wall, left-spareTTL*time.Second, left)
	if r.Life != 0 {
		life, fail := s.secondsOf(ctx, r.Life)
		if fail != nil {
			return time.Millisecond
		}
		left = min(left, life)
	}
	return clamp(left, time.Millisecond, r.TTL)
}

func clamp(d, low, high time.Duration) time.Duration { return min(max(d, low), high) }

func (s *Store) secondsOf(ctx context.Context, lease int64) (time.Duration, *failure) {
	seconds, fail := s.pool.timeToLive(ctx, clientv3.LeaseID(lease))
	return time.Duration(max(seconds, 0)) * time.Second, fail
}

// lifeSlack is by how much the etcd lease of the maximum lifetime may outlive it,
// see limitLife.
const lifeSlack = 3 * time.Second

// lifeLeft returns what the maximum lifetime of an active lease leaves: by this
// store's own monotonic clock if it made the grant, else by its wall clock as far
// as etcd agrees.
func (s *Store) lifeLeft(ctx context.Context, r *record, at int64) (time.Duration, *failure) {
	if !r.lifeEnds.IsZero() {
		return max(time.Until(r.lifeEnds), time.Millisecond), nil
	}
	wall := time.Duration(r.Acquired-at)*time.Microsecond + r.MaxLife
	if r.Life != 0 {
		left, fail := s.secondsOf(ctx, r.Life)
		return max(clamp(wall, left-lifeSlack, left), time.Millisecond), fail
	}
	left, fail := s.secondsOf(ctx, r.Lease)
	passed := time.Duration(r.LeaseTTL)*time.Second - left // at most, and two seconds less at least
	return max(clamp(wall, r.MaxLife-passed, r.MaxLife-passed+2*time.Second), time.Millisecond), fail
}

// limitLife makes the etcd lease of the maximum lifetime. Until its first
// renewal no lease needs one: its TTL is within it. How much of it has passed is
// told by what etcd says is left of the TTL, in whole seconds; the rounding is in
// the holder's favour.
func (s *Store) limitLife(ctx context.Context, st *state) (int64, *failure) {
	left, fail := s.pool.timeToLive(ctx, clientv3.LeaseID(st.head.Lease))
	if fail != nil {
		return 0, fail
	}
	// etcd counts from up to spareTTL before the grant.
	passed := max(st.head.LeaseTTL-left-1-spareTTL, 0)
	seconds := ceilSeconds(st.head.MaxLife) - passed
	id, _, fail := s.pool.grant(ctx, max(seconds, 1))
	return int64(id), fail
}
