package prove

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"leased/test/history"
	"leased/test/proc"
)

// roleVariable has this test binary be a client, and says which.
const roleVariable = "TEST_PROVE_CLIENT"

// atOnce is how many deployments are run at a time.
const atOnce = 3

func TestMain(m *testing.M) {
	text := os.Getenv(roleVariable)
	if text == "" {
		proc.AtOnce(atOnce)
		os.Exit(m.Run())
	}
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
	if err := r.play(); err != nil {
		fmt.Fprintln(os.Stderr, r.Name+":", err)
		os.Exit(1)
	}
}

// role is what a client process is told.
type role struct {
	Name     string
	Seed     uint64
	Servers  []string
	Keys     []string
	File     string // of its records
	Register string // where the register's database is
	Unfenced bool   // its writes do not show their tokens: a defect
}

// play is the life of a client: two workers, and an operator who revokes what they
// hold, until it is interrupted.
func (r *role) play() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	file, err := os.OpenFile(r.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	reg, err := openRegister(r.Register, !r.Unfenced)
	if err != nil {
		return err
	}
	granted := &board{}
	var all sync.WaitGroup
	for i := range 3 {
		name := r.Name + string(rune('a'+i))
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // it cannot fail
		w := &worker{
			ctx: ctx, rng: rand.New(rand.NewPCG(r.Seed, h.Sum64())), keys: r.Keys, register: reg, granted: granted,
			caller: &caller{name: name, servers: r.Servers, recorder: history.NewRecorder(file), http: &http.Client{Transport: &http.Transport{}}},
		}
		if i < 2 {
			all.Go(w.work)
		} else {
			all.Go(w.operate)
		}
	}
	all.Wait()
	return file.Close()
}

// worker wants keys, one at a time.
type worker struct {
	*caller
	ctx      context.Context //nolint:containedctx // of the process's life
	rng      *rand.Rand
	keys     []string
	register *register
	requests int
	old      []history.Op // grants that it had, the latest last
	granted  *board
}

func (w *worker) work() {
	for w.ctx.Err() == nil {
		w.cycle()
		w.pause(30 * time.Millisecond)
	}
}

// chance is true so many times of a hundred.
func (w *worker) chance(percent int) bool { return w.rng.IntN(100) < percent }

// pause waits for at most limit, or until the process is to end.
func (w *worker) pause(limit time.Duration) {
	timer := time.NewTimer(time.Duration(w.rng.Int64N(int64(limit))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

func (w *worker) newRequest() string {
	w.requests++
	return w.name + "." + strconv.Itoa(w.requests)
}

// cycle tries to have a key, and does something with it if it was granted.
func (w *worker) cycle() {
	// Each request has an instance of its own, which names it to who is refused.
	request := w.newRequest()
	o := history.Op{
		Verb: history.Acquire, Key: w.keys[w.rng.IntN(len(w.keys))], Request: request, Instance: "i" + request,
		Job: "job", TTLMS: []int64{1000, 1000, 2000}[w.rng.IntN(3)],
	}
	if w.chance(40) {
		o.WaitMS = 50 + w.rng.Int64N(700)
	}
	var got history.Op
	if w.chance(10) {
		got = w.copies(o)
	} else {
		got = w.insist(o)
	}
	if got.Answer.Outcome != history.Acquired {
		w.useOld()
		return
	}
	w.granted.add(got)
	w.hold(got)
	w.old = append(w.old, got)
	if len(w.old) > 4 {
		w.old = w.old[1:]
	}
}

// copies sends the same request twice at the same time, to two servers.
func (w *worker) copies(o history.Op) history.Op {
	var both [2]history.Op
	server := w.rng.IntN(len(w.servers))
	var wg sync.WaitGroup
	for i := range both {
		wg.Go(func() { both[i] = w.send(o, server+i) })
	}
	wg.Wait()
	if both[0].Answer.Outcome == history.Acquired {
		return both[0]
	}
	return both[1]
}

// insist repeats a call whose outcome is unknown, with the same request id; most of
// the time, since callers also give up.
func (w *worker) insist(o history.Op) history.Op {
	for {
		got := w.send(o, w.rng.IntN(len(w.servers)))
		switch got.Answer.Outcome {
		case history.Lost, history.Unknown, history.Unavailable, history.Timeout, history.Closed, history.NotSent:
			if w.ctx.Err() != nil || w.chance(25) {
				return got
			}
			w.pause(200 * time.Millisecond)
		default:
			return got
		}
	}
}

// hold does what holders do, and what they should not.
func (w *worker) hold(g history.Op) {
	for range w.rng.IntN(7) {
		switch w.rng.IntN(8) {
		case 0, 1:
			w.renew(g)
		case 2:
			w.check(g)
		case 3, 4:
			w.write(g)
		case 5: // the same again
			w.insist(g)
		case 6: // another request under the same id
			o := g
			o.Job = "another job"
			w.insist(o)
		case 7: // a token that this lease does not have
			o := g
			o.Answer.Token += uint64(w.rng.IntN(2)*2) - 1 // the next one, or the one before
			if o.Answer.Token != 0 {
				w.release(o)
			}
		}
		w.pause(40 * time.Millisecond)
	}
	switch {
	case w.chance(80):
		w.release(g)
	case w.chance(33):
		w.lastMoment(g)
	case w.chance(50):
		// It stays beyond its time, as a process does that was suspended.
		timer := time.NewTimer(time.Duration(g.TTLMS)*time.Millisecond + time.Duration(w.rng.IntN(600))*time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-w.ctx.Done():
		}
		w.write(g)
		w.renew(g)
		w.release(g)
	}
}

// lastMoment relies on a lease until just before its end, when it cannot be over yet.
func (w *worker) lastMoment(g history.Op) {
	o := w.renew(g)
	if o.Answer.Outcome != history.Renewed {
		return
	}
	end := o.CalledNS + o.Answer.ExpiresInMS*int64(time.Millisecond)
	before := time.Duration(w.rng.Int64N(int64(60 * time.Millisecond)))
	timer := time.NewTimer(time.Duration(end-history.Now()) - before)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
	w.check(g)
	w.renew(g)
	w.release(g)
}

// useOld uses a lease that is over, or should be.
func (w *worker) useOld() {
	if len(w.old) == 0 || w.chance(50) {
		return
	}
	g := w.old[w.rng.IntN(len(w.old))]
	switch w.rng.IntN(5) {
	case 0:
		w.renew(g)
	case 1:
		w.release(g)
	case 2:
		w.check(g)
	case 3:
		w.write(g)
	case 4:
		w.insist(g)
	}
}

// presenting returns a call that presents a grant.
func presenting(verb string, g history.Op) history.Op {
	return history.Op{Verb: verb, Key: g.Key, Instance: g.Instance, Lease: g.Answer.Lease, Token: g.Answer.Token}
}

func (w *worker) renew(g history.Op) history.Op {
	o := presenting(history.Renew, g)
	o.Request = w.newRequest()
	if w.chance(10) {
		w.insist(o)
	}
	return w.insist(o)
}

// release ends a lease. All calls for the same lease and token are one request, which
// is repeated.
func (w *worker) release(g history.Op) {
	o := presenting(history.Release, g)
	o.Request = fmt.Sprint("end.", g.Request, ".", o.Token)
	w.insist(o)
}

func (w *worker) check(g history.Op) {
	o := presenting(history.Check, g)
	o.Instance, o.Lease = "", ""
	w.send(o, w.rng.IntN(len(w.servers)))
}

func (w *worker) write(g history.Op) {
	o := presenting(history.Write, g)
	w.begin(&o)
	outcome := w.register.write(&o)
	w.end(&o, history.Answer{Outcome: outcome})
}
