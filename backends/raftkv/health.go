package raftkv

import (
	"context"
	"errors"
	"time"

	"leased/contract"
)

// Health implements contract.Store.
func (s *Store) Health(ctx context.Context, r *contract.HealthRequest) (contract.Health, error) {
	a, err := s.health(ctx, r)
	return a.healthOr(err)
}

// healthOr returns the answer, or why there is none in the form of one.
func (a *healthAnswer) healthOr(err error) (contract.Health, error) {
	h := a.Health
	switch contract.CodeOf(err) {
	case 0:
	case contract.CodeClosed, contract.CodeInvalid:
		return contract.Health{}, err
	default:
		h = contract.Health{Detail: detailOf(err)}
	}
	h.Guarantees = Guarantees()
	return h, nil
}

// health is Health without what each node knows by itself, and with how far the
// state is here, which leads.
func (s *Store) health(ctx context.Context, r *contract.HealthRequest) (healthAnswer, error) {
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		return healthAnswer{}, err
	}
	defer end()
	var a healthAnswer
	h := &a.Health
	err = s.engine.read(ctx, func(*state, int64) bool { return false }, func(st *state, _ int64) {
		n := st.namespace(r.Namespace)
		h.Ready, h.ActiveLeases, h.Waiters = true, n.active, n.waiters
		h.Leader = s.engine.nodeID // only a leader's reads are confirmed
		a.Index, a.Clock = st.index, st.now
	})
	if err != nil {
		h.Detail = detailOf(err)
	}
	return a, nil
}

func detailOf(err error) string {
	if e, ok := errors.AsType[*contract.Error](err); ok {
		return e.Detail
	}
	return "the store cannot serve"
}

// Guarantees returns what this backend promises.
func Guarantees() contract.Guarantees {
	return contract.Guarantees{
		ProcessCrash: "Nothing that was acknowledged is lost: an answer is given after the entry is on disk (fsync) at a majority of the voters.",
		MachineCrash: "As a process crash, as long as the disk keeps what it confirmed.",
		FailOver:     "A new leader has every acknowledged change. A lease may live longer by the time without a leader plus 0.5 s, never shorter.",
		Partition:    "Only the side with a majority of the voters grants, renews, releases or confirms; the other answers unavailable or outcome_unknown.",
		ClockStep:    "None of the nodes' wall clocks decides anything; a step changes the times that are displayed.",
		Restore:      "A restore ends every lease of the backup and raises every namespace's floor above all tokens that were ever granted.",
		Granularity:  time.Millisecond,
		MinTTL:       time.Millisecond,
		Slack:        pollInterval + 200*time.Millisecond,
		Fairness:     "First come first served per key, over all gateways.",
		QuotaExact:   true,
	}
}
