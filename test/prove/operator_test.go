package prove

import (
	"math/rand/v2"
	"sync"
	"time"

	"leased/gateway/api"
	"leased/test/history"
)

// board has the grants of a client's workers, of which its operator is told as well:
// nobody else may know a lease's id.
type board struct {
	mu     sync.Mutex
	grants []history.Op // the latest last
}

func (b *board) add(g history.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grants = append(b.grants[max(0, len(b.grants)-5):], g)
}

// pick returns a grant, half of the time the latest, whose holder is at work. ok is
// false when there has been none.
func (b *board) pick(rng *rand.Rand) (g history.Op, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.grants) == 0 {
		return g, false
	}
	if rng.IntN(2) == 0 {
		return b.grants[len(b.grants)-1], true
	}
	return b.grants[rng.IntN(len(b.grants))], true
}

// operate has leases revoked while their holders work, and goes on to work, and some
// that are over.
func (w *worker) operate() {
	for w.ctx.Err() == nil {
		w.pause(1500 * time.Millisecond)
		g, ok := w.granted.pick(w.rng)
		if !ok {
			continue
		}
		request := w.newRequest()
		o := history.Op{
			Verb: history.Revoke, Key: g.Key, Lease: g.Answer.Lease, Request: request, Reason: "reason of " + request,
			Mode: []string{api.ModeRevoke, api.ModeForceRelease}[w.rng.IntN(2)],
		}
		w.insist(o)
		if w.chance(20) { // the same again
			w.insist(o)
		}
	}
}
