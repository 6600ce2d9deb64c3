package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"leased/contract"
	"leased/gateway/api"
)

// TestService_nonsense: an answer that no store may give is a defect, told as
// one. It never reads as a success.
func TestService_nonsense(t *testing.T) {
	lease := contract.Lease{Owner: "anonymous", State: contract.StateActive, Token: 1}
	for name, answer := range map[string]struct {
		res contract.Result
		err error
	}{
		"no outcome":        {contract.Result{}, nil},
		"unknown outcome":   {contract.Result{Outcome: 200, Lease: &lease}, nil},
		"success, no lease": {contract.Result{Outcome: contract.OutcomeRenewed}, nil},
		"foreign error":     {contract.Result{}, errors.New("dial 192.0.2.7: refused")},
		"error and outcome": {contract.Result{Outcome: contract.OutcomeRenewed, Lease: &lease}, errors.New("dial 192.0.2.7")},
		"error of no code":  {contract.Result{}, &contract.Error{Detail: "?"}},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			r.store.renew = func(context.Context, *contract.RenewRequest) (contract.Result, error) { return answer.res, answer.err }
			a := r.post(t, "/leases/"+someLease+"/renew", `{"token":7,"instance":"w"}`)
			wantProblem(t, a, api.CodeInternal)
			if strings.Contains(a.body, "192.0.2.7") {
				t.Errorf("the reply shows the cause: %s", a.body)
			}
			if answer.err != nil && !strings.Contains(log.String(), answer.err.Error()) {
				t.Errorf("the log does not tell the cause: %s", log.String())
			}
		})
	}
}

// TestService_errors: each error has its status, and says what it may say.
func TestService_errors(t *testing.T) {
	for code := contract.CodeInvalid; code <= contract.CodeInternal; code++ {
		r := newRig(t)
		r.store.acquire = func(context.Context, *contract.AcquireRequest) (contract.Result, error) {
			return contract.Result{}, fmt.Errorf("wrapped: %w", &contract.Error{Code: code, Field: "f", Detail: "is so", Err: errors.New("secret")})
		}
		a := r.post(t, "/leases", acquireBody, api.HeaderIdempotencyKey, "r-1")
		p := wantProblem(t, a, api.CodeOfError(code))
		if p.Field != "f" || p.Detail != "f is so" || strings.Contains(a.body, "secret") {
			t.Errorf("%v: got %s", code, a.body)
		}
	}
}

func TestService_bulkFaults(t *testing.T) {
	r := newRig(t)
	lease := r.acquired(t, "r-1")
	body := fmt.Sprintf(`{"instance":"worker-7","leases":[{"lease_id":%q,"token":%d},{"lease_id":%q,"token":7}]}`, lease.LeaseID, lease.Token, someLease)
	r.store.bulk = func(ctx context.Context, b *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
		res, err := r.store.Store.RenewBulk(ctx, b)
		res.Items[1] = contract.RenewItemResult{Err: contract.Errorf(contract.CodeOutcomeUnknown, nil, "no answer")}
		return res, err
	}
	got := read[api.RenewBulkReply](t, r.post(t, "/renew", body, api.HeaderIdempotencyKey, "r-2"), http.StatusOK).Results
	if len(got) != 2 || got[0].Outcome != "renewed" || got[0].Lease == nil || got[0].Error != nil {
		t.Fatalf("got %+v", got)
	}
	if e := got[1].Error; e == nil || e.Code != api.CodeOutcomeUnknown || e.RequestID != "r-2" || !e.Retryable || got[1].Outcome != "" {
		t.Errorf("got %+v, want outcome_unknown", got[1])
	}
	r.store.bulk = func(context.Context, *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
		return contract.RenewBulkResult{Items: make([]contract.RenewItemResult, 1)}, nil
	}
	wantProblem(t, r.post(t, "/renew", body), api.CodeInternal)
	r.store.bulk = func(context.Context, *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
		return contract.RenewBulkResult{}, contract.Errorf(contract.CodeUnavailable, nil, "no leader")
	}
	wantProblem(t, r.post(t, "/renew", body), api.CodeUnavailable)
}

// TestService_place: who comes back with its request id is told its place.
func TestService_place(t *testing.T) {
	r := newRig(t)
	r.acquired(t, "r-1")
	answers := make(chan answer, 2)
	wait := strings.Replace(acquireBody, `"instance":"worker-7"`, `"instance":"waiter","wait_ms":200000`, 1)
	for i, id := range []string{"w-1", "w-2"} {
		go func() { answers <- r.post(t, "/leases", wait, api.HeaderIdempotencyKey, id) }()
		eventually(t, "one more waits", func() bool { return r.waiters(t) == int64(i+1) })
	}
	ask := strings.Replace(wait, `"wait_ms":200000`, `"wait_ms":0`, 1)
	for id, want := range map[string]api.Queue{"w-1": {Length: 2, Position: 1}, "w-2": {Length: 2, Position: 2}, "w-3": {Length: 2}} {
		p := wantProblem(t, r.post(t, "/leases", ask, api.HeaderIdempotencyKey, id), api.CodeConflict)
		if p.Queue == nil || *p.Queue != want {
			t.Errorf("%s: got queue %v, want %v", id, p.Queue, want)
		}
	}
	r.Drain()
	wantProblem(t, receive(t, answers), api.CodeClosed)
	wantProblem(t, receive(t, answers), api.CodeClosed)
}

// TestService_timeoutEndsWait: a ?timeout shorter than the wait ends it, as a
// conflict.
func TestService_timeoutEndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is over when the request waits, and not before
		r := newRig(t)
		r.acquired(t, "r-1")
		wait := strings.Replace(acquireBody, `"instance":"worker-7"`, `"instance":"waiter","wait_ms":200000`, 1)
		wantProblem(t, r.post(t, "/leases?timeout=20ms", wait), api.CodeConflict)
	})
}

func TestAudit_forceRelease(t *testing.T) {
	r, sink := newAuditRig(t)
	l := r.acquired(t, "r-1")
	r.post(t, "/leases/"+l.LeaseID+"/revoke", `{"reason":"dead","mode":"force_release"}`)
	events := sink.recorded()
	if e := events[len(events)-1]; e.Operation != "force_release" || e.Outcome != "revoked" || e.Reason != "dead" {
		t.Errorf("got %s %s %q", e.Operation, e.Outcome, e.Reason)
	}
}

// TestLog: one line a request, quiet about what is ordinary, and without what a
// caller may have put into the URL.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	lines := func() []string {
		var got []string
		for line := range strings.Lines(log.String()) {
			var level, outcome string
			for f := range strings.FieldsSeq(line) {
				if v, ok := strings.CutPrefix(f, "level="); ok {
					level = v
				}
				if v, ok := strings.CutPrefix(f, "outcome="); ok {
					outcome = v
				}
			}
			if strings.Contains(line, "msg=request ") {
				got = append(got, level+" "+outcome)
			}
		}
		return got
	}
	r.acquired(t, "r-1")
	r.post(t, "/leases", acquireBody)
	r.get(t, "/leases/"+someLease)
	r.get(t, "/leases?access_token=sesame")
	r.store.renew = func(context.Context, *contract.RenewRequest) (contract.Result, error) {
		return contract.Result{}, contract.Errorf(contract.CodeUnavailable, errors.New("the cause"), "no leader")
	}
	r.post(t, "/leases/"+someLease+"/renew", `{"token":7,"instance":"w"}`)
	want := []string{"DEBUG acquired", "DEBUG conflict", "INFO not_found", "INFO invalid", "WARN unavailable"}
	if diff := cmp.Diff(want, lines()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if s := log.String(); strings.Contains(s, "sesame") || strings.Contains(s, "nightly") || !strings.Contains(s, "the cause") {
		t.Errorf("the log has a credential or metadata, or lacks the cause:\n%s", s)
	}
	if s := log.String(); !strings.Contains(s, "method=POST route=/v1/namespaces/:namespace/leases status=201") || !strings.Contains(s, "request_id=r-1 namespace=default") {
		t.Errorf("got:\n%s", s)
	}
}
