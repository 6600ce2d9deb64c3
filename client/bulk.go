package client

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"leased/gateway/api"
)

const (
	// maxBulk is how many leases one bulk renewal takes.
	maxBulk = 1000
	// doubtBulk is how many it takes of those whose latest renewal failed: a call
	// that was too large for its time must not be repeated as it was.
	doubtBulk = 100
	// paceSpan is how many times as long as the shortest one the intervals of a
	// call may be. Its time is the shortest, and a lease with a short TTL must not
	// be lost because a thousand with long ones take longer than that.
	paceSpan = 2
)

// item is one lease of a bulk renewal, which may name it only once, with all
// sessions on it: several if it was resumed, or a Hold repeated.
type item struct {
	sessions []*Session
	outlook  // of the most urgent one
}

func (i *item) add(s *Session, o *outlook) {
	if len(i.sessions) == 0 {
		i.outlook = *o
	}
	i.sessions = append(i.sessions, s)
	i.due, i.trust, i.interval = min(i.due, o.due), min(i.trust, o.trust), min(i.interval, o.interval)
	i.doubt = i.doubt || o.doubt
}

// batches returns what to renew now, by calls.
//
// Whoever is due within half an interval comes along: leases of one TTL are
// renewed together from then on, since of two that are not, one is due within
// half an interval of the other. More would renew those again that were renewed
// a moment ago, each time that one lease has to be tried again.
func batches(ready []*item) (all [][]*item) {
	slices.SortFunc(ready, func(a, b *item) int { return cmp.Compare(a.interval, b.interval) })
	for len(ready) > 0 {
		pace := ready[0].interval
		n := slices.IndexFunc(ready, func(i *item) bool { return i.interval > paceSpan*pace })
		if n < 0 {
			n = len(ready)
		}
		class := ready[:n]
		ready = ready[n:]
		if !slices.ContainsFunc(class, func(i *item) bool { return i.due <= 0 }) {
			continue
		}
		var held, doubted []*item
		for _, i := range class {
			switch {
			case i.due > pace/2:
			case i.doubt:
				doubted = append(doubted, i)
			default:
				held = append(held, i)
			}
		}
		// The most urgent ones go first, and with each other.
		slices.SortFunc(doubted, func(a, b *item) int { return cmp.Compare(a.trust, b.trust) })
		all = slices.AppendSeq(all, slices.Chunk(doubted, doubtBulk))
		all = slices.AppendSeq(all, slices.Chunk(held, maxBulk))
	}
	return all
}

// renew renews a batch within the limit.
func (g *group) renew(ctx context.Context, batch []*item, limit time.Duration) {
	defer g.poke()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	g.send(ctx, batch, limit)
}

// send renews a batch with one call, or with more if one of its leases would take
// the others with it.
func (g *group) send(ctx context.Context, batch []*item, limit time.Duration) {
	leases := make([]api.RenewBulkLease, len(batch))
	for n, i := range batch {
		leases[n] = api.RenewBulkLease{LeaseID: i.sessions[0].request.leaseID, Token: i.sessions[0].request.token}
	}
	// Half of it for an attempt: a server that swallows the first leaves time for
	// another one.
	got, err := g.client.renewBulk(ctx, RenewBulkRequest{Namespace: g.id.namespace, Instance: g.id.instance, Leases: leases}, limit/2)
	if len(batch) > 1 && isOfOneLease(err) {
		g.send(ctx, batch[:len(batch)/2], limit)
		g.send(ctx, batch[len(batch)/2:], limit)
		return
	}
	now := g.client.now()
	pause := min(max(limit/4, shortestPause), longestRetry)
	for n, i := range batch {
		for _, s := range i.sessions {
			switch {
			case err != nil:
				s.failed(err, now, pause)
			case got.Items[n].Error != nil:
				s.refused(got.Items[n].Error, now, pause)
			case got.Items[n].Lease.LeaseID != s.request.leaseID || got.Items[n].Lease.Token != s.request.token:
				s.failed(newError(api.CodeOutcomeUnknown, got.RequestID, errIncomplete, "the answer is about another lease"), now, pause)
			default:
				s.renewed(got.Items[n].Lease, got.SentAt)
			}
			s.setInFlight(false, now)
		}
	}
}

// isOfOneLease reports whether a call was refused because of one of its leases.
func isOfOneLease(err error) bool {
	e, ok := err.(*Error) //nolint:errorlint // renewBulk made it
	return ok && e.Problem.Code == api.CodeInvalid && strings.HasPrefix(e.Problem.Field, "leases[")
}
