package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"leased/contract"
)

const (
	// healthTimeout bounds one look at a store. It is short: a store that needs
	// longer to say that it is well does not serve anybody.
	healthTimeout = 2 * time.Second
	// lookTimeout is what the store is given of it, so that what it has to say
	// when it reaches nobody arrives before healthTimeout is over: why, and what
	// it guarantees.
	lookTimeout = healthTimeout - 2*contract.AnswerSlack
	// healthAge is how old an answer a scrape of the metrics may show.
	healthAge = time.Second
)

// probe asks a namespace's store for its health, one call at a time whoever
// wants to know, so that readiness checks cannot pile up on a dead store.
type probe struct {
	name  string
	store contract.Store

	mu      sync.Mutex
	running chan struct{} // closed when the running call has ended; nil when none runs
	last    contract.Health
	at      time.Time // of last; zero before the first answer
}

func newProbe(name string, store contract.Store) *probe {
	return &probe{name: name, store: store}
}

// start begins a look at the store unless one runs, or unless the last one is
// younger than maxAge. The channel it returns is closed once latest is fresh.
func (p *probe) start(maxAge time.Duration) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		return p.running
	}
	done := make(chan struct{})
	if !p.at.IsZero() && time.Since(p.at) < maxAge {
		close(done)
		return done
	}
	p.running = done
	go p.look(done)
	return done
}

func (p *probe) look(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	h, err := p.store.Health(ctx, &contract.HealthRequest{Namespace: p.name})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		h = contract.Health{Detail: healthDetail(err), Guarantees: p.last.Guarantees}
	}
	p.last, p.at, p.running = h, time.Now(), nil
	close(done)
}

func healthDetail(err error) string {
	if e, ok := errors.AsType[*contract.Error](err); ok && e.Detail != "" {
		return e.Code.String() + ": " + e.Detail
	}
	return contract.CodeOf(err).String()
}

// get waits for the look that done belongs to and returns its answer. When ctx
// ends first, the store is not ready: that it does not answer is the answer.
// What it promised when it last answered still holds.
func (p *probe) get(ctx context.Context, done <-chan struct{}) contract.Health {
	select {
	case <-done:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.last
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		return contract.Health{Detail: "the store does not answer", Guarantees: p.last.Guarantees}
	}
}

// wait returns when no look runs, or with an error when ctx ends first.
func (p *probe) wait(ctx context.Context) error {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if running == nil {
		return nil
	}
	select {
	case <-running:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// healthOf looks at all namespaces at the same time, each at most maxAge ago,
// and returns their answers in the same order within healthTimeout.
func healthOf(ctx context.Context, namespaces []*namespace, maxAge time.Duration) []contract.Health {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	looks := make([]<-chan struct{}, len(namespaces))
	for i, ns := range namespaces {
		looks[i] = ns.health.start(maxAge)
	}
	all := make([]contract.Health, len(namespaces))
	for i, ns := range namespaces {
		all[i] = ns.health.get(ctx, looks[i])
	}
	return all
}
