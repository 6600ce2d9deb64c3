package raftkv

import (
	"context"
	"time"

	"leased/contract"
	"leased/contract/lifecycle"
)

// leaveRetry is the pause before those whose leaving failed are tried again.
const leaveRetry = 100 * time.Millisecond

// leaving is a call on its way out of a queue.
type leaving struct {
	item awayItem
	done chan answered // gets one answer
}

// leave takes a call out of its queue through the log. Calls that leave while an
// entry is on its way share the next one: a thousand waits that end together
// must not be a thousand entries.
func (e *Engine) leave(item awayItem) <-chan answered {
	l := leaving{item: item, done: make(chan answered, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leavers = append(e.leavers, l)
	if e.leaverRuns {
		return l.done
	}
	if e.closed {
		e.leavers = nil
		l.done <- answered{err: lifecycle.Closed()}
		return l.done
	}
	e.leaverRuns = true
	e.background.Go(e.runLeaver)
	return l.done
}

// runLeaver works until nobody leaves.
func (e *Engine) runLeaver() {
	for {
		e.mu.Lock()
		n := min(len(e.leavers), leaveBatch)
		if n == 0 {
			e.leavers, e.leaverRuns = nil, false
			e.mu.Unlock()
			return
		}
		batch := e.leavers[:n:n]
		e.leavers = e.leavers[n:]
		e.mu.Unlock()
		e.leaveAll(batch)
	}
}

// leaveAll puts the batch through the log. Those who left are told at once when
// that does not work out, and it is tried again as long as this node leads: who
// stayed present would be served with nobody there. A new leader's first entry
// ends all waits anyway, and an away that is repeated does nothing.
func (e *Engine) leaveAll(batch []leaving) {
	c := &awayCmd{Items: make([]awayItem, len(batch))}
	for i := range batch {
		c.Items[i] = batch[i].item
	}
	told := false
	pause := time.NewTimer(0)
	defer pause.Stop()
	for term := e.term(); ; {
		<-pause.C
		replies, err := e.proposeAway(c)
		for i := range batch {
			switch {
			case told:
			case err != nil:
				batch[i].done <- answered{err: err}
			default:
				batch[i].done <- answered{answer: replies[i]}
			}
		}
		told = true
		if err == nil || term == 0 || e.term() != term || e.isClosed() {
			return
		}
		pause.Reset(leaveRetry)
	}
}

func (e *Engine) proposeAway(c *awayCmd) ([]reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), ownTimeout)
	defer cancel()
	answer, err := e.propose(ctx, kindAway, c)
	if err != nil {
		return nil, err
	}
	replies, ok := answer.([]reply)
	if !ok || len(replies) != len(c.Items) {
		return nil, contract.Errorf(contract.CodeInternal, nil, "the log gave an answer of another kind")
	}
	return replies, nil
}
