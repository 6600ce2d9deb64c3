package raftkv

import (
	"context"
	"time"

	"leased/contract"
)

// AcquireOver is the call of a peer whose wait was over before it was begun.
func (p *PeerHandler) AcquireOver(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	over, leave := context.WithCancelCause(ctx)
	leave(errWaitOver)
	return p.acquire(over, r)
}
