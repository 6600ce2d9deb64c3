package valkey

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"leased/contract"
)

// retryAfter is the advice that goes with unavailable.
const retryAfter = 250 * time.Millisecond

// dialCode stands for the code of a refusal that came from no server.
const dialCode = "dial"

// refusal is an error of the server that tells that the script did not run, or
// not beyond where it began to write.
type refusal struct{ code, detail string }

// refusals lists the codes with which a server refuses a command before it runs
// it. What is not in it may have been applied.
func refusals() []refusal {
	return []refusal{
		{"LOADING", "the server is loading its data"},
		{"MASTERDOWN", "the server lost its primary"},
		{"READONLY", "the server is a replica"},
		{"OOM", "the server is out of memory"},
		{"MISCONF", "the server cannot persist and takes no writes"},
		{"NOREPLICAS", "the server has too few replicas and takes no writes"},
		{"NOAUTH", "the server wants other credentials"},
		{"WRONGPASS", "the server wants other credentials"},
		{"NOPERM", "the server's ACL forbids what a lease store needs"},
		{"CLUSTERDOWN", "the cluster cannot serve the namespace's slot"},
		{"TRYAGAIN", "the namespace's slot is being moved"},
		{"MOVED", "the namespace's slot is being moved"},
		{"ASK", "the namespace's slot is being moved"},
		{"BUSY", "the server is busy with a script"},
		{"NOSCRIPT", "the server forgot its scripts"},
		{"UNKILLABLE", "the server is busy with a script"},
	}
}

// classifier says what is known of a command that failed.
type classifier struct{ refusals []refusal }

// refused returns the refusal that err is, if it is one. A script's own text
// may stand before the code when the server refused one of the script's calls.
func (c classifier) refused(err error) (refusal, bool) {
	if e, ok := valkey.IsValkeyErr(err); ok {
		text := e.Error()
		for _, r := range c.refusals {
			if text == r.code || strings.HasPrefix(text, r.code+" ") {
				return r, true
			}
		}
		// "ERR max number of clients reached" comes before anything is read.
		if strings.HasPrefix(text, "ERR max number of clients") {
			return refusal{"ERR", "the server has no connection left"}, true
		}
		return refusal{}, false
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return refusal{dialCode, "the server cannot be reached"}, true
	}
	if errors.Is(err, valkey.ErrNoAddr) || errors.Is(err, valkey.ErrNoSlot) {
		return refusal{dialCode, "no server can be reached"}, true
	}
	return refusal{}, false
}

// of returns the contract's error for err. reads tells that the command
// changed nothing, so that nothing about it is unknown.
func (c classifier) of(ctx context.Context, err error, reads bool) *contract.Error {
	if known, ok := errors.AsType[*contract.Error](err); ok {
		return known
	}
	if r, ok := c.refused(err); ok {
		if r.code == dialCode && ctx.Err() != nil { // dial sees to it that it has
			return contract.Errorf(contract.CodeTimeout, err, "the deadline passed before there was a connection")
		}
		return unavailable(err, r.detail)
	}
	if forbidden(err) && !reads {
		// The right was taken away just now; the script may have written before.
		return contract.Errorf(contract.CodeOutcomeUnknown, err, "the server's ACL stopped the operation; repeat it with the same request id")
	}
	if forbidden(err) {
		return unavailable(err, "the server's ACL forbids what a lease store needs")
	}
	if e, ok := valkey.IsValkeyErr(err); ok {
		// WRONGTYPE, a corrupt record, an error in a script: a foreign hand or a
		// defect. Nothing is granted over it.
		if text := e.Error(); strings.HasPrefix(text, "CORRUPT ") {
			return contract.Errorf(contract.CodeInternal, err, "a stored record is corrupt")
		}
		return contract.Errorf(contract.CodeInternal, err, "the server answered with an error that it should not have")
	}
	if errors.Is(err, errRecord) {
		return contract.Errorf(contract.CodeInternal, err, "a stored record is corrupt")
	}
	// The client gives a connection the deadline of the call, which may pass a
	// moment before the context notices.
	late := ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
	switch {
	case reads && late:
		return contract.Errorf(contract.CodeTimeout, err, "no answer before the deadline")
	case reads:
		return unavailable(err, "the connection to the server broke")
	case late:
		return contract.Errorf(contract.CodeOutcomeUnknown, err, "no answer before the deadline; repeat it with the same request id")
	}
	e := contract.Errorf(contract.CodeOutcomeUnknown, err, "the answer was lost; repeat it with the same request id")
	e.RetryAfter = retryAfter
	return e
}

// forbidden tells that the server's ACL stopped a script that was running.
func forbidden(err error) bool {
	e, ok := valkey.IsValkeyErr(err)
	return ok && strings.Contains(e.Error(), "ACL failure in script")
}

func unavailable(err error, detail string) *contract.Error {
	e := contract.Errorf(contract.CodeUnavailable, err, "%s", detail)
	e.RetryAfter = retryAfter
	return e
}
