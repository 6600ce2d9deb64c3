package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leased/contract"
)

// notApplied lists the errors with which etcd says that it refused before it
// did anything. All others leave the outcome of a write open: gRPC's
// Unavailable among them, which a server also answers after it proposed, and the
// lack of space, which it also finds when it has applied the transaction.
func notApplied() []error {
	return []error{
		rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrUnhealthy, rpctypes.ErrTooManyRequests, rpctypes.ErrNotCapable,
		rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrCorrupt,
		rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey,
		rpctypes.ErrLeaseNotFound, rpctypes.ErrLeaseExist, rpctypes.ErrLeaseTTLTooLarge,
		rpctypes.ErrCompacted, rpctypes.ErrFutureRev,
		rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthFailed, rpctypes.ErrAuthOldRevision,
		rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrPermissionNotGranted, rpctypes.ErrAuthNotEnabled,
		rpctypes.ErrClusterIDMismatch,
	}
}

// failure is an RPC that gave no answer.
type failure struct {
	err error // as rpctypes has it
	// sent tells that the request was written to a connection.
	sent bool
	// refused tells that the server certainly did not apply it.
	refused bool
	// said tells that this is one of the server's own refusals.
	said bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// unknown tells that a write may have been applied.
func (f *failure) unknown() bool { return f.sent && !f.refused }

// noSpace tells that etcd is out of space. It may have found that when the write
// was applied; a read that begins afterwards shows whether it was.
func (f *failure) noSpace() bool { return isErr(f.err, rpctypes.ErrNoSpace) }

// elsewhere tells that another member may be able to answer.
func (f *failure) elsewhere() bool {
	if !f.said {
		return !f.noSpace() // which all members agree on
	}
	for _, e := range [...]error{
		rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrUnhealthy, rpctypes.ErrTooManyRequests, rpctypes.ErrGRPCNotSupportedForLearner,
	} {
		if isErr(f.err, e) {
			return true
		}
	}
	return false
}

func newFailure(err error, sent bool) *failure {
	err = rpctypes.Error(err)
	f := &failure{err: err, sent: sent, refused: !sent}
	for _, e := range notApplied() {
		if isErr(err, e) {
			f.refused, f.said = true, true
		}
	}
	return f
}

// isErr compares by code and text: etcd's errors are values of gRPC's status.
func isErr(err, target error) bool {
	if errors.Is(err, target) {
		return true
	}
	var e, t rpctypes.EtcdError
	return errors.As(err, &e) && errors.As(rpctypes.Error(target), &t) && e.Error() == t.Error() && e.Code() == t.Code()
}

// errorOf turns what stopped a call into what its caller is told. maybe tells
// that something which the call sent may have been applied.
func errorOf(ctx context.Context, err error, maybe bool) error {
	if e, ok := errors.AsType[*contract.Error](err); ok {
		if maybe && e.Code != contract.CodeInternal {
			return contract.Errorf(contract.CodeOutcomeUnknown, e, "the outcome is not known; repeat it with the same request id")
		}
		return e
	}
	switch {
	case maybe && isOver(ctx, err):
		return contract.Lost(ctx)
	case maybe:
		return contract.Errorf(contract.CodeOutcomeUnknown, err, "etcd did not answer; repeat it with the same request id")
	case isOver(ctx, err):
		return contract.Errorf(contract.CodeTimeout, err, "the deadline passed before etcd answered; nothing was applied")
	}
	return refusal(err)
}

// writeError is errorOf for a call that changes something. A deadline that passed
// while etcd had any part of it leaves the outcome open, as it does on every
// other store.
func writeError(ctx context.Context, err error, maybe bool) error {
	if f, ok := errors.AsType[*failure](err); ok && f.sent && !f.refused && isOver(ctx, err) {
		maybe = true
	}
	return errorOf(ctx, err, maybe)
}

// overSlack is by how much etcd may be before the caller with a deadline that
// both of them keep.
const overSlack = 50 * time.Millisecond

// isOver tells that the call failed because its time is over: also if etcd, which
// is told the deadline, or a transaction of several calls that keeps it too, said so
// a moment before.
func isOver(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, ok := ctx.Deadline()
	ended := status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
	return ok && ended && time.Until(deadline) < overSlack
}

// refusal is errorOf for what certainly was not applied.
func refusal(err error) error {
	for _, row := range [...]struct {
		err    error
		code   contract.Code
		detail string
	}{
		{rpctypes.ErrNoSpace, contract.CodeUnavailable, "etcd is out of space"},
		{rpctypes.ErrRequestTooLarge, contract.CodeInternal, "the record is larger than etcd takes"},
		{rpctypes.ErrTooManyOps, contract.CodeInternal, "the transaction is larger than etcd takes"},
		{rpctypes.ErrDuplicateKey, contract.CodeInternal, "the transaction writes a key twice"},
		{rpctypes.ErrCorrupt, contract.CodeUnavailable, "etcd has found itself corrupt"},
		{rpctypes.ErrPermissionDenied, contract.CodeUnavailable, "etcd does not permit it"},
		{rpctypes.ErrAuthFailed, contract.CodeUnavailable, "etcd does not accept the credentials"},
		{rpctypes.ErrInvalidAuthToken, contract.CodeUnavailable, "etcd does not accept the credentials"},
		{rpctypes.ErrUserEmpty, contract.CodeUnavailable, "etcd wants credentials"},
		{rpctypes.ErrNoLeader, contract.CodeUnavailable, "etcd has no leader"},
	} {
		if isErr(err, row.err) {
			return contract.Errorf(row.code, err, "%s", row.detail)
		}
	}
	return contract.Errorf(contract.CodeUnavailable, err, "etcd cannot be reached or does not serve")
}
