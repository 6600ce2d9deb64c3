package raftkv

import (
	"context"
	"fmt"
	"time"

	"leased/contract"
)

// maxReadyLag is how far a node that is ready may be behind the one that leads.
const maxReadyLag = 2 * time.Second

// behind calls a node that is far behind not ready, though it can hand calls on: who
// restarts one node after the other waits for each to be ready, and this one cannot
// take the next one's place yet.
func behind(h *contract.Health) {
	if h.Lag > maxReadyLag {
		h.Ready, h.Detail = false, fmt.Sprintf("this node's state is %v behind that of the node that leads", h.Lag.Round(time.Millisecond))
	}
}

const (
	// lagPatience is how long a node that lacks an entry is given to apply it before it
	// is called behind. A follower hears that an entry is committed with the next one,
	// or, where none follows, 50 to 100 ms later.
	lagPatience = 300 * time.Millisecond
	// lagPoll is how often it is looked whether this node has caught up.
	lagPoll = 5 * time.Millisecond
)

// lag returns how far this node's state is behind one that stands at index and at
// now on its clock.
//
// The state's clock goes on with entries only, and where no lease is active there may
// be none for hours: the first one after that takes it on by hours, and they are
// no measure of how far a node is behind that lacks only this one. So a node that gets
// there at once is not behind at all.
func (f *FSM) lag(ctx context.Context, index uint64, now int64) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, lagPatience)
	defer cancel()
	if f.reaches(ctx, index) {
		return 0
	}
	return time.Duration(max(0, now-f.Clock()))
}

// reaches waits until the state has the entry, and tells whether it has.
func (f *FSM) reaches(ctx context.Context, index uint64) bool {
	if f.index() >= index {
		return true
	}
	tick := time.NewTicker(lagPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return f.index() >= index
		}
		if f.index() >= index {
			return true
		}
	}
}
