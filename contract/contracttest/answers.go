package contracttest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"leased/contract"
)

// answered wants an outcome and that the answer is shaped as the outcome says.
func (e *Env) answered(op string, res contract.Result, err error, want contract.Outcome) contract.Result {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: got error %v, want %s", op, err, want)
	}
	if res.Outcome != want {
		e.Fatalf("%s: got %s, want %s", op, describe(res), want)
	}
	if wrong := resultShape(res); wrong != "" {
		e.Fatalf("%s: %s: %s", op, describe(res), wrong)
	}
	return res
}

// describe says in one line what an answer was.
func describe(res contract.Result) string {
	var b strings.Builder
	b.WriteString(res.Outcome.String())
	if res.Replayed {
		b.WriteString(" (replayed)")
	}
	if l := res.Lease; l != nil {
		fmt.Fprintf(&b, " with the %s lease of %s, token %d", l.State, l.Owner, l.Token)
	}
	if res.Limit != "" {
		fmt.Fprintf(&b, ", limit %s", res.Limit)
	}
	return b.String()
}

// resultShape holds an answer to what contract.Result and contract.Outcome say
// of it, whatever it was asked. It returns what is wrong, or "".
func resultShape(res contract.Result) string {
	state := contract.State(0)
	switch res.Outcome {
	case contract.OutcomeAcquired, contract.OutcomeRenewed, contract.OutcomeCurrent, contract.OutcomeConflict:
		state = contract.StateActive
	case contract.OutcomeReleased, contract.OutcomeEndedReleased:
		state = contract.StateReleased
	case contract.OutcomeRevoked, contract.OutcomeEndedRevoked:
		state = contract.StateRevoked
	case contract.OutcomeEndedExpired:
		state = contract.StateExpired
	case contract.OutcomeFound:
		if res.Lease == nil {
			return "there is no lease in it"
		}
		state = res.Lease.State
	case contract.OutcomeNotFound, contract.OutcomeNotOwner, contract.OutcomeStaleToken,
		contract.OutcomeRequestIDReused, contract.OutcomeQuotaExceeded:
		if res.Lease != nil {
			return "it shows a lease that the caller may not see"
		}
	default:
		return "it is not an outcome"
	}
	switch {
	case state != 0 && res.Lease == nil:
		return "there is no lease in it"
	case state != 0 && res.Lease.State != state:
		return fmt.Sprintf("the lease should be %s", state)
	case res.Outcome != contract.OutcomeConflict && res.Queue != contract.Queue{}:
		return fmt.Sprintf("it has a queue, %+v", res.Queue)
	case res.Outcome != contract.OutcomeQuotaExceeded && res.Limit != "":
		return "it names a limit"
	case res.Lease == nil:
		return ""
	}
	// The first answer to a renewal is replayed as it was, and a later renewal
	// may have outlived the end that it told.
	if res.Replayed && res.Outcome == contract.OutcomeRenewed && res.Lease.ExpiresIn == 0 {
		return ""
	}
	return leaseShape(*res.Lease)
}

// leaseShape holds a lease to what contract.Lease says of every lease.
func leaseShape(l contract.Lease) string {
	switch {
	case l.RecordVersion != contract.RecordVersion:
		return fmt.Sprintf("record version %d", l.RecordVersion)
	case l.KeyID != l.Key.ID():
		return "the key id is not the key's"
	case l.ID.KeyID() != l.KeyID:
		return "the lease id does not lead to the key"
	case l.Token == 0 || l.Token > contract.MaxToken:
		return fmt.Sprintf("token %d", l.Token)
	case l.AcquiredAt.IsZero() || l.RenewedAt.Before(l.AcquiredAt) || !l.ExpiresAt.After(l.AcquiredAt):
		return fmt.Sprintf("acquired at %v, renewed at %v, expires at %v", l.AcquiredAt, l.RenewedAt, l.ExpiresAt)
	case l.TTL <= 0 || l.MaxLifetime <= 0:
		return fmt.Sprintf("TTL %v, maximum lifetime %v", l.TTL, l.MaxLifetime)
	}
	if l.State == contract.StateActive {
		switch {
		case l.ExpiresIn <= 0:
			return fmt.Sprintf("active with %v left", l.ExpiresIn)
		case l.ExpiresIn > l.MaxLifetime:
			return fmt.Sprintf("%v left of a maximum lifetime of %v", l.ExpiresIn, l.MaxLifetime)
		case !l.EndedAt.IsZero() || l.EndedBy != "" || l.Reason != "":
			return fmt.Sprintf("active and ended at %v by %q, reason %q", l.EndedAt, l.EndedBy, l.Reason)
		}
		return ""
	}
	switch {
	case !l.State.Terminal():
		return fmt.Sprintf("a lease in state %s", l.State)
	case l.ExpiresIn != 0:
		return fmt.Sprintf("ended with %v left", l.ExpiresIn)
	case l.EndedAt.Before(l.AcquiredAt):
		return fmt.Sprintf("acquired at %v and ended at %v", l.AcquiredAt, l.EndedAt)
	case l.State == contract.StateExpired && (l.EndedBy != "" || l.EndedAt.Before(l.ExpiresAt)):
		return fmt.Sprintf("expires at %v, expired at %v by %q", l.ExpiresAt, l.EndedAt, l.EndedBy)
	case l.State != contract.StateExpired && l.EndedBy == "":
		return "nobody ended it"
	}
	return ""
}

func (e *Env) keyShape(res contract.KeyResult) {
	e.Helper()
	switch res.Outcome {
	case contract.OutcomeNotFound:
		if res.Lease != nil || res.Last != nil {
			e.Fatalf("get key: not found, with a lease")
		}
	case contract.OutcomeFound:
		if res.KeyID != res.Key.ID() {
			e.Fatalf("get key: the key id is not the key's")
		}
	default:
		e.Fatalf("get key: got %s, want found or not_found", res.Outcome)
	}
	if res.Lease != nil {
		if wrong := leaseShape(*res.Lease); wrong != "" || res.Lease.State != contract.StateActive {
			e.Fatalf("get key: a %s lease as the holder's: %s", res.Lease.State, wrong)
		}
	}
	if res.Last != nil {
		if wrong := leaseShape(*res.Last); wrong != "" || !res.Last.State.Terminal() {
			e.Fatalf("get key: a %s lease as the last that ended: %s", res.Last.State, wrong)
		}
	}
}

// sameLease wants two answers about one lease to agree in everything but the
// time left, which runs.
func (e *Env) sameLease(what string, got, want contract.Lease) {
	e.Helper()
	if diff := leaseDiff(got, want); diff != "" {
		e.Fatalf("%s: (-got +want)\n%s", what, diff)
	}
}

func leaseDiff(got, want contract.Lease) string {
	return cmp.Diff(got, want, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(contract.Lease{}, "ExpiresIn"))
}

// shows wants every read on s to show the lease as want is: active ones as the
// holder's, ended ones only where ended leases are asked for. It is how rules
// see that a refused operation changed nothing.
func (e *Env) shows(s contract.Store, want contract.Lease) {
	e.Helper()
	e.sameLease("get", e.get(s, want.ID), want)
	now := e.keyNow(s, want.KeyID)
	if now.Outcome != contract.OutcomeFound || now.Key != want.Key {
		e.Fatalf("get key: got %s, key %+v, want found, key %+v", now.Outcome, now.Key, want.Key)
	}
	listed := e.inList(s, want, contract.ListRequest{})
	if want.State == contract.StateActive {
		if now.Lease == nil {
			e.Fatalf("get key: nobody holds the key, want the lease of %s", want.Owner)
		}
		e.sameLease("get key", *now.Lease, want)
		e.sameLease("check", *e.check(s, want.KeyID, want.Token, contract.OutcomeCurrent).Lease, want)
		if listed != 1 {
			e.Fatalf("list: shows the active lease %d times, want once", listed)
		}
		return
	}
	if now.Lease != nil && now.Lease.ID == want.ID {
		e.Fatalf("get key: shows a %s lease as the holder's", want.State)
	}
	if listed != 0 {
		e.Fatalf("list: shows a %s lease among the active ones", want.State)
	}
	if n := e.inList(s, want, contract.ListRequest{State: want.State}); n != 1 {
		e.Fatalf("list of %s leases: shows the lease %d times, want once", want.State, n)
	}
}

// inList counts how often a listing shows the lease, each time as it is.
func (e *Env) inList(s contract.Store, want contract.Lease, r contract.ListRequest) int {
	e.Helper()
	n := 0
	for _, l := range e.list(s, r) {
		if l.ID == want.ID {
			n++
			e.sameLease("list", l, want)
		}
	}
	return n
}

// free wants nobody to hold the key.
func (e *Env) free(s contract.Store, key contract.Key) {
	e.Helper()
	if l := e.keyNow(s, key.ID()).Lease; l != nil {
		e.Fatalf("the key should be free; %s holds it with token %d", l.Owner, l.Token)
	}
}

// failed wants an error that says what is known of the operation.
func (e *Env) failed(op string, err error, code contract.Code, field string) {
	e.Helper()
	var typed *contract.Error
	switch {
	case err == nil:
		e.Fatalf("%s: got no error, want %s %s", op, code, field)
	case !errors.As(err, &typed):
		e.Fatalf("%s: got %T (%v), want a *contract.Error", op, err, err)
	case typed.Code != code || typed.Field != field:
		e.Fatalf("%s: got %s about %q (%v), want %s about %q", op, typed.Code, typed.Field, err, code, field)
	}
}
