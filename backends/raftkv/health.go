package raftkv

import (
	"context"
	"errors"
	"time"

	"leased/contract"
)

// Health implements contract.Store.
func (s *Store) Health(ctx context.Context, r *contract.HealthRequest) (contract.Health, error) {
	h := contract.Health{Guarantees: Guarantees()}
	ctx, end, err := s.handle.Begin(ctx, r.Validate)
	if err != nil {
		if code := contract.CodeOf(err); code == contract.CodeInvalid || code == contract.CodeClosed {
			return contract.Health{}, err
		}
		h.Detail = detailOf(err)
		return h, nil
	}
	defer end()
	err = s.engine.read(ctx, func(*state, int64) bool { return false }, func(st *state, _ int64) {
		n := st.namespace(r.Namespace)
		h.Ready, h.ActiveLeases, h.Waiters = true, n.active, n.waiters
		h.Leader = s.engine.nodeID // only a leader's reads are confirmed
	})
	if err != nil {
		h.Detail = detailOf(err)
	}
	return h, nil
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
		Restore:      "Tokens stay above the floor, which whoever restores a backup must raise.",
		Granularity:  time.Millisecond,
		MinTTL:       time.Millisecond,
		Slack:        pollInterval + 200*time.Millisecond,
		Fairness:     "First come first served per key, over all gateways.",
		QuotaExact:   true,
	}
}
