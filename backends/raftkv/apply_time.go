package raftkv

import (
	"github.com/tidwall/btree"

	"leased/contract"
)

// wallDrift is how far the displayed time may stand off the leader's wall clock
// before a sweep sets it.
const wallDrift = 500e6 // ns

// sweep ends the leases that are due and forgets what need not be remembered,
// at most c.Max of each sort.
func (st *step) sweep(c *sweepCmd) any {
	if d := c.Wall - st.wall(); c.Wall != 0 && (d > wallDrift || d < -wallDrift) {
		st.offset = c.Wall - st.now
	}
	st.expireDue(c.Max)
	eachDue(st.placeDrops, st.now, c.Max, func(scope contract.Scope) {
		w, ok := st.places.Get(&waiter{cmd: &acquireCmd{Scope: scope}})
		if !ok {
			return
		}
		next := *st.key(w.ident)
		st.removePlace(&next, w)
		st.putKey(&next)
	})
	st.dropAnswers(int(c.Max))
	// A row goes only after every answer that refers to it: answers that are due
	// and still wait for a later sweep hold back the rows behind them.
	horizon := st.now
	if d, ok := st.nextAnswerDrop(); ok {
		horizon = min(horizon, d.at-1)
	}
	eachDue(st.endedDrops, horizon, c.Max, func(g *grant) {
		if row, ok := st.ended.Get(endedAt(g.ident, g.token)); ok {
			st.retire(row)
		}
	})
	return nil
}

// expireDue ends at most limit leases that have run out.
func (st *step) expireDue(limit int32) {
	eachDue(st.expiries, st.now, limit, func(id *ident) { st.expire(st.key(id)) })
}

// expireOwned ends the leases of an owner that have run out.
func (st *step) expireOwned(ns, owner string) {
	if d, ok := st.expiries.Min(); !ok || d.at > st.now {
		return
	}
	var over []*ident
	st.held.Ascend(&lease{grant: &grant{ident: &ident{ns: ns}, owner: owner}}, func(l *lease) bool {
		if l.ns != ns || l.owner != owner {
			return false
		}
		if l.expires <= st.now {
			over = append(over, l.ident)
		}
		return true
	})
	for _, id := range over {
		st.settle(id)
	}
}

// eachDue takes up to limit entries that are due off the agenda, in order.
func eachDue[T any](agenda *btree.BTreeG[due[T]], now int64, limit int32, do func(T)) {
	for range limit {
		d, ok := agenda.Min()
		if !ok || d.at > now {
			return
		}
		agenda.Delete(d)
		do(d.what)
	}
}

// takeover begins a leader's term: whoever waited at an earlier leader is away
// until the same request id comes back.
func (st *step) takeover(c *takeoverCmd) {
	st.offset = c.Wall - st.now
	var present []*waiter
	st.queue.Scan(func(w *waiter) bool {
		if w.attach != 0 {
			present = append(present, w)
		}
		return true
	})
	for _, w := range present {
		gone := *w
		gone.attach, gone.drop = 0, st.now+w.cmd.Keep.Idempotency
		st.move(st.key(w.ident), w, &gone)
	}
}

// raiseFloor makes every later token of the namespace higher than c.Above: the
// next entry has a higher index than this one.
func (st *step) raiseFloor(c *floorCmd) {
	if c.Above <= st.index {
		return
	}
	n := *st.namespace(c.Namespace)
	n.floor = max(n.floor, c.Above-st.index)
	st.namespaces.Set(&n)
}
