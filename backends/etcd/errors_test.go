package etcd

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leased/contract"
)

// TestErrorOf_deadlineAtEtcd has what keeps the call's deadline too, etcd or a
// transaction of several calls, be a moment ahead of the caller's own clock.
func TestErrorOf_deadlineAtEtcd(t *testing.T) {
	for _, err := range []error{
		status.Error(codes.DeadlineExceeded, "context deadline exceeded"), context.DeadlineExceeded,
	} {
		for _, test := range []struct {
			left  time.Duration
			read  contract.Code
			write contract.Code
		}{
			{left: overSlack / 2, read: contract.CodeTimeout, write: contract.CodeOutcomeUnknown},
			{left: time.Hour, read: contract.CodeUnavailable, write: contract.CodeUnavailable}, // a member that hangs
		} {
			ctx, cancel := context.WithTimeout(t.Context(), test.left)
			if got := contract.CodeOf(errorOf(ctx, newFailure(err, true), false)); got != test.read {
				t.Errorf("%T, a read with %v left: got %v, want %v", err, test.left, got, test.read)
			}
			if got := contract.CodeOf(writeError(ctx, newFailure(err, true), false)); got != test.write {
				t.Errorf("%T, a write with %v left: got %v, want %v", err, test.left, got, test.write)
			}
			cancel()
		}
	}
}
