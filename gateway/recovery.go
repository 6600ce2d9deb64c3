package gateway

import (
	"context"
	"time"
)

// recoveryPause is between two looks at what the stores find at the start.
const recoveryPause = time.Second

// recovery is what was seen of a namespace since the gateway started.
type recovery struct {
	namespace *namespace
	served    bool  // at the last look
	overdue   int64 // at the last look
}

// recover says once of each namespace, when it serves, what was found in it: what is
// active, who waits, and how many leases had ended before this gateway started and are
// on record only now. It returns when it has said so of all, or ctx ends.
func (s *Service) recover(ctx context.Context) {
	left := make([]*recovery, len(s.router.sorted))
	for i, ns := range s.router.sorted {
		left[i] = &recovery{namespace: ns}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for len(left) > 0 {
		select {
		case <-timer.C:
			timer.Reset(recoveryPause)
		case <-ctx.Done():
			return
		}
		left = s.lookForRecovered(ctx, left)
	}
}

// lookForRecovered looks at namespaces, and returns those that are to be looked at
// again: they do not serve, or their stores may still be at it.
func (s *Service) lookForRecovered(ctx context.Context, all []*recovery) (left []*recovery) {
	namespaces := make([]*namespace, len(all))
	for i, r := range all {
		namespaces[i] = r.namespace
	}
	for i, h := range healthOf(ctx, namespaces, 0) {
		r := all[i]
		overdue := r.namespace.overdue.Load()
		settled := r.served && overdue == r.overdue
		if r.served, r.overdue = h.Ready, overdue; !h.Ready || !settled {
			left = append(left, r)
			continue
		}
		s.logger.Info("namespace recovered", "namespace", r.namespace.Name,
			"active", h.ActiveLeases, "waiting", h.Waiters, "expired_meanwhile", overdue)
	}
	return left
}
