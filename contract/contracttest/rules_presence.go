package contracttest

import (
	"fmt"
	"time"

	"leased/contract"
)

// serveWithin is the promise to those who wait behind waiters that are gone.
const serveWithin = 2 * time.Second

func presenceRules() []Rule {
	return []Rule{
		{ID: "wait-cancelled-skipped", Func: waitCancelledSkipped, Timed: true,
			Sentence: "A waiter whose call was cancelled stops counting, is answered at once, and is skipped when its turn comes."},
		{ID: "wait-killed-skipped", Func: waitKilledSkipped,
			Sentence: "Waiters of a gateway that was killed are skipped: the next one present is served within two seconds of its turn, and they stop counting."},
		{ID: "wait-all-away", Func: waitAllAway,
			Sentence: "A key whose waiters are all away becomes free, and whoever asks next is granted it."},
		{ID: "wait-place-kept", Func: waitPlaceKept,
			Sentence: "A waiter whose wait ended keeps its place: the same request id, through whichever gateway, is back before those who came later."},
		{ID: "wait-place-outlives-gateway", Func: waitPlaceOutlivesGateway,
			Sentence: "A place is kept when the gateway at which it was waited for is killed or closed, or the call's deadline passes: those who return are served in the old order, before those who came later."},
		{ID: "wait-place-lost", Func: waitPlaceLost,
			Sentence: "A waiter that is away when its turn comes loses its place: when it returns it is behind those who waited meanwhile."},
		{ID: "wait-copies-share-grant", Func: waitCopiesShareGrant,
			Sentence: "Copies of a waiting acquire, over several gateways, wait at one place and all get the one grant, all but one as replayed."},
		{ID: "wait-copy-leaving", Func: waitCopyLeaving,
			Sentence: "A waiter of which one copy left is present while another still waits."},
		{ID: "wait-copies-leave-apart", Func: waitCopiesLeaveApart,
			Sentence: "A waiter is present as long as one of its copies is, whichever others leave, and however: at their deadline, cancelled, or with their gateway."},
		{ID: "wait-close-answers", Func: waitCloseAnswers, Timed: true,
			Sentence: "Closing a gateway answers its waiters closed at once, and they are away."},
	}
}

func waitCancelledSkipped(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	var calls []*call
	for i := range 5 {
		calls = append(calls, e.park(pick(i, a, b), e.newWaiter(held.Key, fmt.Sprint("owner-", i))))
	}
	for _, i := range []int{0, 2, 3} {
		e.gone(b, calls[i])
	}
	for _, i := range []int{1, 4} {
		since := e.handOver(b, held)
		held = e.served(calls[i])
		e.servedInTime(calls[i], since)
	}
	e.end(a, held)
	e.free(b, held.Key)
	e.neverGranted(b, held.Key, calls[0], calls[2], calls[3])
}

// servedInTime wants a waiter behind others that are gone not to have waited
// longer than is promised since its turn came. Only that is measured.
func (e *Env) servedInTime(c *call, since time.Time) {
	e.Helper()
	if took := e.since(since, c.ended); took > serveWithin {
		e.Errorf("the waiter was served %v after its turn came, more than %v", took, serveWithin)
	}
}

// neverGranted wants no lease of the calls' requests to be held.
func (e *Env) neverGranted(s contract.Store, key contract.Key, calls ...*call) {
	e.Helper()
	for _, c := range calls {
		for _, l := range e.list(s, contract.ListRequest{}) {
			if l.RequestID == c.req.RequestID && l.Owner == c.req.Owner && l.Key == key {
				e.Fatalf("%s holds the key, though its waiting acquire was not granted", l.Owner)
			}
		}
	}
}

func waitKilledSkipped(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	var lost []*call
	for range 3 {
		lost = append(lost, e.park(b, e.newWaiter(held.Key, bob)))
	}
	next := e.park(a, e.newWaiter(held.Key, carol))
	behind := e.park(b, e.newWaiter(held.Key, bob))
	last := e.park(a, e.newWaiter(held.Key, alice))
	lost = append(lost, behind)

	e.kill(b)
	since := e.handOver(a, held)
	held = e.served(next)
	e.servedInTime(next, since)
	e.eventually("the killed gateway's waiters stop counting", func() bool { return e.queueLength(a, held.Key) == 1 })
	e.neverGranted(a, held.Key, lost...)

	since = e.handOver(a, held)
	held = e.served(last)
	e.servedInTime(last, since)
	e.end(a, held)
	e.free(a, held.Key)
	e.neverGranted(a, held.Key, lost...)
}

func waitAllAway(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	first, second := e.park(a, e.newWaiter(held.Key, bob)), e.park(b, e.newWaiter(held.Key, bob))
	e.gone(a, first)
	e.gone(a, second)
	e.end(a, held)
	e.free(b, held.Key)
	next := e.grant(b, held.Key, carol)
	// Who comes back now is a waiter like any other.
	first, second = e.park(b, first.req), e.park(a, second.req)
	e.end(b, next)
	e.end(b, e.served(first))
	e.served(second)
}

func waitPlaceKept(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	first := e.newWaiter(held.Key, bob)
	brief := *first
	brief.Wait = 100 * time.Millisecond
	if q := e.cut(a, &brief, watchdog).Queue; q != (contract.Queue{Position: 1}) {
		e.Errorf("a waiter whose wait ended: got %+v, want none waiting and a place at the head", q)
	}
	e.nobodyWaits(held.Key)
	second, third := e.park(a, e.newWaiter(held.Key, carol)), e.park(b, e.newWaiter(held.Key, alice))
	back := e.park(b, first) // through the other gateway
	e.gone(a, second)
	again := e.park(a, second.req)

	for _, c := range []*call{back, again, third} {
		e.end(a, held)
		held = e.served(c)
		if c.res.Replayed {
			e.Errorf("the first grant of %s is marked as replayed", c.req.Owner)
		}
	}
}

func waitPlaceLost(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	first, second, third := e.park(a, e.newWaiter(held.Key, bob)), e.park(b, e.newWaiter(held.Key, carol)), e.park(a, e.newWaiter(held.Key, alice))
	e.gone(b, first)
	e.end(a, held)
	held = e.served(second) // the first one's turn has passed
	back := e.park(b, first.req)
	e.end(a, held)
	held = e.served(third)
	e.waiting(back)
	e.end(a, held)
	if got := e.served(back); back.res.Replayed || got.Token <= held.Token {
		e.Errorf("the returned waiter: got %s after token %d, want a grant of its own", describe(back.res), held.Token)
	}
}

func waitCopiesShareGrant(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	first := e.park(a, e.newWaiter(held.Key, bob))
	r := e.newWaiter(held.Key, carol)
	shared := []*call{e.park(a, r)}
	for i := range 5 {
		shared = append(shared, e.start(pick(i, b, a), r, watchdog))
	}
	last := e.park(b, e.newWaiter(held.Key, alice))
	e.end(a, held)
	held = e.served(first)
	e.waiting(shared...)
	e.end(b, held)
	var answers []contract.Result
	var errs []error
	for _, c := range shared {
		e.finished(c)
		answers, errs = append(answers, c.res), append(errs, c.err)
	}
	l := e.oneDoes("waiting acquire", answers, errs, contract.OutcomeAcquired)
	e.waiting(last)
	e.shows(a, l)
	e.end(a, l)
	e.served(last)
}

func waitCopyLeaving(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	r := e.newWaiter(held.Key, bob)
	stays := e.park(a, r)
	leaves := e.start(b, r, 300*time.Millisecond)
	last := e.park(b, e.newWaiter(held.Key, carol))
	e.refusedAtEnd(leaves)
	if n := e.queueLength(b, held.Key); n != 2 {
		e.Errorf("%d wait for the key after one of two copies left, want 2", n)
	}
	e.end(b, held)
	held = e.served(stays)
	e.waiting(last)
	e.end(b, held)
	e.served(last)
}

func waitCloseAnswers(e *Env) {
	a, b := e.pair()
	held := e.grant(a, e.key("held"), alice)
	var cut []*call
	for range 3 {
		cut = append(cut, e.park(b, e.newWaiter(held.Key, bob)))
	}
	next := e.park(a, e.newWaiter(held.Key, carol))

	began := time.Now()
	e.closeNow(b)
	for _, c := range cut {
		e.finished(c)
		e.failed("waiting acquire on a closed store", c.err, contract.CodeClosed, "")
		if took := e.since(began, c.ended); took > e.answerSlack {
			e.Errorf("a waiter was answered %v after its store was closed, more than %v", took, e.answerSlack)
		}
	}
	e.eventually("the closed gateway's waiters stop counting", func() bool { return e.queueLength(a, held.Key) == 1 })
	e.waiting(next)
	e.end(a, held)
	held = e.served(next)
	e.end(a, held)
	e.free(a, held.Key)
	e.neverGranted(a, held.Key, cut...)
}

// closeNow closes a handle before the rule is over.
func (e *Env) closeNow(s contract.Store) {
	e.Helper()
	e.forget(s)
	if err := s.Close(e.ctx()); err != nil {
		e.Fatalf("close: got error %v", err)
	}
}
