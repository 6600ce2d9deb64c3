package prove

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"leased/contract"
	"leased/contract/memstore"
	"leased/gateway"
	"leased/test/history"
)

// step is a step function over a right model.
type step func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer

// machine is a memstore.Machine with a wrong step.
type machine struct {
	*memstore.Model
	wrong step
}

func (m machine) Step(now time.Time, op memstore.Op) memstore.Answer {
	return m.wrong(m.Model, now, op)
}

func right(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer { return m.Step(now, op) }

// defect is a way to be wrong, and the rule that has to notice.
type defect struct {
	rule     string
	step     func() step
	unfenced bool
	loses    bool
}

// onMemory starts real gateways over the store in memory with a wrong step, whose
// clock is the machine's.
func onMemory(t *testing.T, wrong step) *deployment {
	t.Helper()
	b := memstore.New(memstore.Options{Machine: machine{memstore.NewModel(256), wrong}})
	var mu sync.Mutex
	last := time.Now()
	// A call that comes now is not carried out at an earlier instant.
	advance := func() {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		b.Advance(now.Sub(last))
		last = now
	}
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for {
			select {
			case <-time.After(2 * time.Millisecond):
				advance()
			case <-done:
				return
			}
		}
	})
	d := &deployment{promise: history.Promise{Slack: 250 * time.Millisecond}}
	for range 2 {
		store, policy := b.Open(), gateway.DefaultPolicy()
		policy.History.PerKey = contract.MaxHistoryRows
		g, err := gateway.New(gateway.Options{
			Namespaces: []gateway.Namespace{{Name: "default", Backend: "memory", Store: store, Policy: policy}},
			Auth:       gateway.AuthNone(),
		})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			advance()
			g.Handler().ServeHTTP(w, r)
		}))
		d.servers = append(d.servers, server.URL)
		t.Cleanup(func() {
			if err := g.Close(context.Background()); err != nil {
				t.Error(err)
			}
			server.Close()
			if err := store.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { close(done); ticking.Wait() })
	d.direct = slices.Clone(d.servers)
	return d
}

// holder returns the active lease of a key, or nil.
func holder(m *memstore.Model, now time.Time, id contract.KeyID) *contract.Lease {
	return m.Step(now, memstore.GetKey{Request: contract.GetKeyRequest{Namespace: "default", KeyID: id}}).Key.Lease
}

// also adds what a further step caused to the answer of the first.
func also(a *memstore.Answer, more memstore.Answer) {
	a.Wakes = append(a.Wakes, more.Wakes...)
	a.Events = append(a.Events, more.Events...)
}

func defects() map[string]defect {
	return map[string]defect{
		"release without compare":  {rule: history.Compared, step: func() step { return releaseAnything }},
		"early expiry":             {rule: history.Exclusive, step: func() step { return lasting(0.8) }},
		"late expiry":              {rule: history.OnTime, step: func() step { return lasting(3) }},
		"stale read":               {rule: history.Linearisable, step: staleRead},
		"lost replay":              {rule: history.RequestIDs, step: forgetful},
		"acquire not atomic":       {rule: history.Exclusive, step: overwriting},
		"granted as unavailable":   {rule: history.NotApplied, step: unavailable},
		"tokens begin again":       {rule: history.TokensRise, step: emptied, loses: true},
		"a revocation that is not": {rule: history.Revocations, step: func() step { return lenient }},
		"no fence":                 {rule: history.Fenced, step: func() step { return right }, unfenced: true},
	}
}

// releaseAnything ends whichever lease the key has.
func releaseAnything(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
	if r, ok := op.(memstore.Release); ok {
		if l := holder(m, now, r.Request.LeaseID.KeyID()); l != nil {
			r.Request.LeaseID, r.Request.Token, r.Request.Instance = l.ID, l.Token, l.Instance
			op = r
		}
	}
	return m.Step(now, op)
}

// lasting has leases last another time than they are said to.
func lasting(factor float64) step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if r, ok := op.(memstore.Acquire); ok {
			r.Request.TTL = scaled(r.Request.TTL, factor)
			op = r
		}
		a := m.Step(now, op)
		said := func(l *contract.Lease) {
			if l != nil {
				l.TTL, l.ExpiresIn = scaled(l.TTL, 1/factor), scaled(l.ExpiresIn, 1/factor)
			}
		}
		said(a.Result.Lease)
		for i := range a.Wakes {
			said(a.Wakes[i].Result.Lease)
		}
		return a
	}
}

// scaled keeps to the whole milliseconds that the API has.
func scaled(d time.Duration, factor float64) time.Duration {
	return time.Duration(float64(d) * factor).Round(time.Millisecond)
}

// staleRead answers checks from a copy that is up to half a second old.
func staleRead() step {
	var (
		old   *memstore.Model
		since time.Time
	)
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		if now.Sub(since) > 500*time.Millisecond {
			old, since = m.Clone(), now
		}
		if _, ok := op.(memstore.Check); ok {
			return old.Clone().Step(now, op)
		}
		return m.Step(now, op)
	}
}

// forgetful drops the answer to an acquire when its lease is over.
func forgetful() step {
	granted := map[contract.Scope]contract.LeaseID{}
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		r, ok := op.(memstore.Acquire)
		if !ok {
			return m.Step(now, op)
		}
		id, had := granted[r.Request.Scope()]
		if l := holder(m, now, r.Request.Key.ID()); had && (l == nil || l.ID != id) {
			m.Step(now, memstore.Undo{Request: r.Request, LeaseID: id})
		}
		a := m.Step(now, op)
		if a.Result.Outcome == contract.OutcomeAcquired {
			granted[r.Request.Scope()] = a.Result.Lease.ID
		}
		return a
	}
}

// overwriting grants a key that was free 50 ms ago, as who reads it first and writes it
// then.
func overwriting() step {
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		var before memstore.Answer
		if r, ok := op.(memstore.Acquire); ok {
			l := holder(m, now, r.Request.Key.ID())
			if l != nil && l.RequestID != r.Request.RequestID && now.Sub(l.AcquiredAt) < 50*time.Millisecond {
				before = m.Step(now, memstore.Release{Request: contract.ReleaseRequest{
					Namespace: "default", RequestID: "overwritten " + r.Request.RequestID, Owner: l.Owner, Instance: l.Instance, LeaseID: l.ID, Token: l.Token,
					Retention: r.Request.Retention,
				}})
			}
		}
		a := m.Step(now, op)
		also(&a, before)
		return a
	}
}

// lenient says that it has revoked a lease, and does not.
func lenient(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
	if _, ok := op.(memstore.Revoke); ok {
		return memstore.Answer{Result: m.Clone().Step(now, op).Result}
	}
	return m.Step(now, op)
}

// unavailable tells of every tenth grant that it was certainly not applied.
func unavailable() step {
	grants := 0
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		if _, ok := op.(memstore.Acquire); ok && a.Result.Outcome == contract.OutcomeAcquired && !a.Result.Replayed {
			if grants++; grants%10 == 0 {
				a.Result, a.Err = contract.Result{}, contract.Errorf(contract.CodeUnavailable, nil, "the store cannot be reached")
			}
		}
		return a
	}
}

// emptied loses everything after twenty grants, also how high its tokens were.
func emptied() step {
	grants := 0
	return func(m *memstore.Model, now time.Time, op memstore.Op) memstore.Answer {
		a := m.Step(now, op)
		for _, e := range a.Events {
			if e.Kind != contract.EventAcquired {
				continue
			}
			if grants++; grants == 20 {
				*m = *memstore.NewModel(256)
			}
		}
		return a
	}
}

// TestDefects runs services that are wrong in one way each, and wants it noticed; and
// one that is right, of which nothing may be said.
func TestDefects(t *testing.T) {
	t.Parallel()
	all := defects()
	all["none"] = defect{step: func() step { return right }}
	seed := seed(t)
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := onMemory(t, c.step())
			d.promise.Loses = c.loses
			newRun(t, d, seed, c.unfenced).find(c.rule, func() {})
		})
	}
}
