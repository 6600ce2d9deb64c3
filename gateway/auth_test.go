package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"leased/contract"
	"leased/gateway/api"
)

// tenantAuth takes the principal from a header and gives it rights on the
// tenants that bear its name, and the verbs that it lists.
type tenantAuth struct {
	verbs []Verb
	// ended makes every answer no.
	ended atomic.Bool
}

func (a *tenantAuth) Authenticate(r *http.Request) (Principal, error) {
	switch name := r.Header.Get("Authorization"); name {
	case "":
		return Principal{}, errors.New("the secret reason")
	case "busy":
		return Principal{}, contract.Errorf(contract.CodeUnavailable, nil, "the keys are being fetched")
	default:
		return Principal{Name: name, Scoped: true}, nil
	}
}

func (a *tenantAuth) Authorize(p Principal, action Action) bool {
	if a.ended.Load() {
		return false
	}
	return slices.Contains(a.verbs, action.Verb) && (action.Some || action.Tenant == p.Name)
}

func allVerbs() []Verb {
	return []Verb{VerbAcquire, VerbInspect, VerbList, VerbHistory, VerbCheck, VerbWatch, VerbRevoke}
}

func newAuthRig(t *testing.T, verbs ...Verb) (*rig, *tenantAuth) {
	t.Helper()
	auth := &tenantAuth{verbs: verbs}
	return newRig(t, func(o *Options) { o.Auth = auth }), auth
}

func TestNew_authRequired(t *testing.T) {
	_, err := New(Options{})
	if err == nil || !strings.Contains(err.Error(), "Auth is required") {
		t.Errorf("got %v: nobody may be let in by forgetting the authenticator", err)
	}
}

func TestAuth_unauthenticated(t *testing.T) {
	r, _ := newAuthRig(t, allVerbs()...)
	for _, path := range []string{"/v1/namespaces", "/v1/namespaces/default", "/v1/namespaces/default/leases", "/v1/namespaces/nope/leases"} {
		a := r.call(t, http.MethodGet, path, "")
		wantProblem(t, a, api.CodeUnauthenticated)
		if got := a.header.Get("WWW-Authenticate"); got != "Bearer" {
			t.Errorf("%s: got WWW-Authenticate %q", path, got)
		}
		if strings.Contains(a.body, "secret") {
			t.Errorf("%s: the reply shows the reason: %s", path, a.body)
		}
	}
	wantProblem(t, r.get(t, "/leases", "Authorization", "busy"), api.CodeUnavailable)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json"} {
		if a := r.call(t, http.MethodGet, path, ""); a.status != http.StatusOK {
			t.Errorf("%s: got status %d", path, a.status)
		}
	}
}

// TestAuth_owner: the owner is the principal, whatever the body would like.
func TestAuth_owner(t *testing.T) {
	r, _ := newAuthRig(t, allVerbs()...)
	a := r.post(t, "/leases", acquireBody, "Authorization", "acme")
	if got := read[api.LeaseReply](t, a, http.StatusCreated).Lease.Owner; got != "acme" {
		t.Errorf("got owner %q, want acme", got)
	}
	body := strings.Replace(acquireBody, `"instance"`, `"owner":"globex","instance"`, 1)
	if p := wantProblem(t, r.post(t, "/leases", body, "Authorization", "acme"), api.CodeInvalid); p.Field != "owner" {
		t.Errorf("got field %q, want owner", p.Field)
	}
}

// TestAuth_stranger: a principal of another tenant learns nothing of a lease,
// however it is named, and changes nothing.
func TestAuth_stranger(t *testing.T) {
	r, _ := newAuthRig(t, allVerbs()...)
	l := read[api.LeaseReply](t, r.post(t, "/leases", acquireBody, "Authorization", "acme"), http.StatusCreated).Lease
	byKey := fmt.Sprintf(`{"key":{"tenant":"acme","program":"recon","target":{"type":"domain","id":"example.com"},"actor":"crawler","operation":"scan"},"token":%d}`, l.Token)
	for name, send := range map[string]func(who string) answer{
		"acquire":  func(who string) answer { return r.post(t, "/leases", acquireBody, "Authorization", who) },
		"get":      func(who string) answer { return r.get(t, "/leases/"+l.LeaseID, "Authorization", who) },
		"key":      func(who string) answer { return r.get(t, "/keys/"+l.KeyID, "Authorization", who) },
		"history":  func(who string) answer { return r.get(t, "/keys/"+l.KeyID+"/history", "Authorization", who) },
		"list":     func(who string) answer { return r.get(t, "/leases?tenant=acme", "Authorization", who) },
		"list all": func(who string) answer { return r.get(t, "/leases", "Authorization", who) },
		"check":    func(who string) answer { return r.post(t, "/check", byKey, "Authorization", who) },
		"check id": func(who string) answer {
			return r.post(t, "/check", fmt.Sprintf(`{"key_id":%q,"token":%d}`, l.KeyID, l.Token), "Authorization", who)
		},
		"resolve": func(who string) answer {
			return r.post(t, "/resolve", strings.Replace(byKey, fmt.Sprintf(`,"token":%d`, l.Token), "", 1), "Authorization", who)
		},
		"revoke": func(who string) answer {
			return r.post(t, "/leases/"+l.LeaseID+"/revoke", `{"reason":"mine now"}`, "Authorization", who)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := send("globex")
			wantProblem(t, a, api.CodeDenied)
			if strings.Contains(a.body, "worker-7") || strings.Contains(a.body, "example.com") {
				t.Errorf("the refusal shows the lease: %s", a.body)
			}
		})
	}
	held := fmt.Sprintf(`{"token":%d,"instance":"worker-7"}`, l.Token)
	for _, verb := range []string{"renew", "release"} {
		wantProblem(t, r.post(t, "/leases/"+l.LeaseID+"/"+verb, held, "Authorization", "globex"), api.CodeNotOwner)
	}
	got := read[api.GetReply](t, r.get(t, "/leases/"+l.LeaseID, "Authorization", "acme"), http.StatusOK).Lease
	if got.State != "active" || got.Renewals != 0 {
		t.Errorf("after refusals got state %s, %d renewals", got.State, got.Renewals)
	}
	// What is not known tells nothing, and so is no matter of rights.
	nobody := contract.NewLeaseID(contract.KeyID{9}, [16]byte{9})
	wantProblem(t, r.get(t, "/leases/"+nobody.String(), "Authorization", "globex"), api.CodeNotFound)
	wantProblem(t, r.get(t, "/keys/"+nobody.KeyID().String(), "Authorization", "globex"), api.CodeNotFound)
	wantProblem(t, r.post(t, "/leases/"+nobody.String()+"/revoke", `{"reason":"x"}`, "Authorization", "globex"), api.CodeNotFound)
	wantProblem(t, r.post(t, "/check", fmt.Sprintf(`{"key_id":%q,"token":1}`, nobody.KeyID()), "Authorization", "globex"), api.CodeNotFound)
	history := read[api.HistoryReply](t, r.get(t, "/keys/"+nobody.KeyID().String()+"/history", "Authorization", "globex"), http.StatusOK)
	if len(history.Events) != 0 {
		t.Errorf("got events %v of a key that is not known", history.Events)
	}
}

// TestAuth_holder: who may acquire but not inspect is told of a conflict, not of
// the holder.
func TestAuth_holder(t *testing.T) {
	r, auth := newAuthRig(t, allVerbs()...)
	l := read[api.LeaseReply](t, r.post(t, "/leases", acquireBody, "Authorization", "acme"), http.StatusCreated).Lease
	p := wantProblem(t, r.post(t, "/leases", acquireBody, "Authorization", "acme"), api.CodeConflict)
	if p.Holder == nil || p.Holder.Instance != "worker-7" {
		t.Errorf("got holder %v, want worker-7", p.Holder)
	}
	auth.verbs = []Verb{VerbAcquire, VerbRevoke}
	// The holder's own name is on the lease, so a stranger has to ask.
	stranger := &Call{Principal: Principal{Name: "other"}, ns: r.service.router.byName["default"]}
	res := contract.Result{Outcome: contract.OutcomeConflict, Lease: &contract.Lease{Owner: "acme", Key: contract.Key{Tenant: "acme"}}}
	r.service.hide(stranger, &res)
	if q := outcomeProblem(&res, "r-1"); q.Holder != nil || q.Queue == nil || strings.Contains(q.Detail, "acme") {
		t.Errorf("got holder %v, queue %v, detail %q; want a queue and nothing of the holder", q.Holder, q.Queue, q.Detail)
	}
	// What one ended oneself, one may see, as its owner.
	a := r.post(t, "/leases/"+l.LeaseID+"/revoke", `{"reason":"x"}`, "Authorization", "acme")
	read[api.LeaseReply](t, a, http.StatusOK)
}

// TestAuth_endedDuringWait: rights that ended while a request waited are gone at
// the grant, which is given back.
func TestAuth_endedDuringWait(t *testing.T) {
	r, auth := newAuthRig(t, allVerbs()...)
	sink := &memorySink{}
	r.service.audit = sink
	l := read[api.LeaseReply](t, r.post(t, "/leases", acquireBody, "Authorization", "acme"), http.StatusCreated).Lease
	answers := make(chan answer, 1)
	go func() {
		body := strings.Replace(acquireBody, `"instance":"worker-7"`, `"instance":"waiter","wait_ms":200000`, 1)
		answers <- r.post(t, "/leases", body, "Authorization", "acme")
	}()
	eventually(t, "one request waits", func() bool { return r.waiters(t) == 1 })
	auth.ended.Store(true)
	id := mustLeaseID(t, l.LeaseID)
	_, err := r.store.Store.Release(t.Context(), &contract.ReleaseRequest{
		Namespace: "default", RequestID: "r", Owner: "acme", Instance: "worker-7", LeaseID: id,
		Token: contract.Token(l.Token), Retention: r.service.router.byName["default"].retention,
	})
	if err != nil {
		t.Fatal(err)
	}
	wantProblem(t, receive(t, answers), api.CodeDenied)
	res, err := r.store.GetKey(context.Background(), &contract.GetKeyRequest{Namespace: "default", KeyID: id.KeyID()})
	if err != nil || res.Lease != nil || res.Last == nil || res.Last.Instance != "waiter" || res.Last.State != contract.StateReleased {
		t.Errorf("got lease %v, last %+v, %v; want the waiter's lease released", res.Lease, res.Last, err)
	}
	var got []string
	for _, e := range sink.recorded() {
		got = append(got, e.Operation+" "+e.Outcome)
	}
	want := []string{"acquire acquired", "release released", "acquire denied"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("audited %v, want %v", got, want)
	}
}

// TestAuth_endedDuringReplay: a copy of a request whose rights ended meanwhile is
// denied, and leaves the grant to the one who has it.
func TestAuth_endedDuringReplay(t *testing.T) {
	r, auth := newAuthRig(t, allVerbs()...)
	read[api.LeaseReply](t, r.post(t, "/leases", acquireBody, "Authorization", "acme", api.HeaderIdempotencyKey, "r-1"), http.StatusCreated)
	r.store.acquire = func(ctx context.Context, q *contract.AcquireRequest) (contract.Result, error) {
		res, err := r.store.Store.Acquire(ctx, q)
		auth.ended.Store(true)
		return res, err
	}
	r.store.release = func(context.Context, *contract.ReleaseRequest) (contract.Result, error) {
		t.Error("the grant is given back")
		return contract.Result{}, nil
	}
	body := strings.Replace(acquireBody, `"instance"`, `"wait_ms":1000,"instance"`, 1)
	wantProblem(t, r.post(t, "/leases", body, "Authorization", "acme", api.HeaderIdempotencyKey, "r-1"), api.CodeDenied)
}
