package etcd

import (
	"context"
	"errors"
	"time"

	"leased/contract"
)

// contestPause is the first pause before a call looks again whose the request id is
// under which another request waits, and contestMost the longest. The line of that one
// looks too.
const (
	contestPause = 5 * time.Millisecond
	contestMost  = 100 * time.Millisecond
)

// contestedError tells a call that another request waits in the line under its
// request id. Either may be the one that was first.
type contestedError struct{}

func (contestedError) Error() string { return "another request waits under this request id" }

// contest goes on with what a wait came to. Where another request waits under the
// call's id it looks in etcd until that says whose the id is, in an answer or a place,
// or until the other one is gone.
func (s *Store) contest(ctx context.Context, a *attempt, res contract.Result, err error) (contract.Result, error) {
	for pause := contestPause; errors.Is(err, contestedError{}); pause = min(2*pause, contestMost) {
		var seen *state
		if res, seen, err = s.try(ctx, a); err != nil || seen == nil {
			return res, err
		}
		if res, err = s.wait(ctx, a, seen); !errors.Is(err, contestedError{}) {
			break
		}
		again := time.NewTimer(min(pause, time.Until(a.until)))
		select {
		case <-again.C:
			if !time.Now().Before(a.until) {
				a.req.Wait = 0 // the next try is the last
			}
		case <-ctx.Done():
			again.Stop()
			return s.outlasted(ctx, seen, a)
		case <-s.handle.Closing():
			again.Stop()
			return contract.Result{}, errClosed()
		}
	}
	return res, err
}

// outlasted answers a call that ended before its wait, and that never stood in the
// line: a grant that it was not told of is a copy's.
func (s *Store) outlasted(ctx context.Context, seen *state, a *attempt) (contract.Result, error) {
	if seen.active() == nil {
		return contract.Result{}, contract.Lost(ctx)
	}
	return s.conflict(seen, a.scope, now()), nil
}
