package gateway

import (
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"leased/contract"
	"leased/contract/memstore"
	"leased/gateway/api"
)

// rig is a gateway over the in-memory store, called without a network. Its
// clock stands still, and its ids are counted, so that replies can be compared.
type rig struct {
	*Gateway
	backend *memstore.Backend
	store   *hookedStore
}

// hookedStore is a store whose calls a test can replace.
type hookedStore struct {
	contract.Store
	acquire func(context.Context, *contract.AcquireRequest) (contract.Result, error)
	renew   func(context.Context, *contract.RenewRequest) (contract.Result, error)
	release func(context.Context, *contract.ReleaseRequest) (contract.Result, error)
	bulk    func(context.Context, *contract.RenewBulkRequest) (contract.RenewBulkResult, error)
	health  func(context.Context, *contract.HealthRequest) (contract.Health, error)
	watch   func(context.Context, *contract.WatchRequest) (contract.Stream, error)
}

func (s *hookedStore) Acquire(ctx context.Context, r *contract.AcquireRequest) (contract.Result, error) {
	if s.acquire != nil {
		return s.acquire(ctx, r)
	}
	return s.Store.Acquire(ctx, r)
}

func (s *hookedStore) Renew(ctx context.Context, r *contract.RenewRequest) (contract.Result, error) {
	if s.renew != nil {
		return s.renew(ctx, r)
	}
	return s.Store.Renew(ctx, r)
}

func (s *hookedStore) Release(ctx context.Context, r *contract.ReleaseRequest) (contract.Result, error) {
	if s.release != nil {
		return s.release(ctx, r)
	}
	return s.Store.Release(ctx, r)
}

func (s *hookedStore) RenewBulk(ctx context.Context, r *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
	if s.bulk != nil {
		return s.bulk(ctx, r)
	}
	return s.Store.RenewBulk(ctx, r)
}

func (s *hookedStore) Health(ctx context.Context, r *contract.HealthRequest) (contract.Health, error) {
	if s.health != nil {
		return s.health(ctx, r)
	}
	return s.Store.Health(ctx, r)
}

func (s *hookedStore) Watch(ctx context.Context, r *contract.WatchRequest) (contract.Stream, error) {
	if s.watch != nil {
		return s.watch(ctx, r)
	}
	return s.Store.Watch(ctx, r)
}

func newRig(tb testing.TB, change ...func(*Options)) *rig {
	tb.Helper()
	nonce := uint64(0)
	backend := memstore.New(memstore.Options{Nonce: func() (n [16]byte) {
		nonce++
		binary.BigEndian.PutUint64(n[8:], nonce)
		return n
	}})
	r := &rig{backend: backend, store: &hookedStore{Store: backend.Open()}}
	o := Options{
		Namespaces: []Namespace{{Name: "default", Backend: "local", Store: r.store, Policy: DefaultPolicy()}},
		Auth:       AuthNone(), Version: "v0.0.0-test",
	}
	for _, c := range change {
		c(&o)
	}
	g, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	r.Gateway = g
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// answer is a reply as a client has it.
type answer struct {
	status int
	header http.Header
	body   string
}

// call sends a request; headers are names and values in turn.
func (r *rig) call(tb testing.TB, method, path, body string, headers ...string) answer {
	tb.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	request := httptest.NewRequestWithContext(tb.Context(), method, path, reader)
	if body != "" {
		request.Header.Set("Content-Type", api.MediaType)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	r.Handler().ServeHTTP(recorder, request)
	return answer{status: recorder.Code, header: recorder.Header(), body: recorder.Body.String()}
}

func (r *rig) post(tb testing.TB, path, body string, headers ...string) answer {
	tb.Helper()
	return r.call(tb, http.MethodPost, "/v1/namespaces/default"+path, body, headers...)
}

func (r *rig) get(tb testing.TB, path string, headers ...string) answer {
	tb.Helper()
	return r.call(tb, http.MethodGet, "/v1/namespaces/default"+path, "", headers...)
}

// read decodes the reply's body, strictly: a field that the API's types do not
// have is an error here.
func read[T any](tb testing.TB, a answer, wantStatus int) T {
	tb.Helper()
	var v T
	if a.status != wantStatus {
		tb.Fatalf("got status %d, want %d: %s", a.status, wantStatus, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v, json.RejectUnknownMembers(true)); err != nil {
		tb.Fatalf("decode %s: %v", a.body, err)
	}
	return v
}

// wantProblem checks that a reply is a whole problem with the given code.
func wantProblem(tb testing.TB, a answer, code api.Code) api.Problem {
	tb.Helper()
	p := read[api.Problem](tb, a, code.Status())
	got := []any{p.Code, p.Type, p.Title, p.Status, p.RequestID, p.Retryable, a.header.Get("Content-Type")}
	want := []any{code, code.Type(), code.Title(), code.Status(), a.header.Get(api.HeaderRequestID), code.Retryable(), api.ProblemMediaType}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("problem (-want +got):\n%s", diff)
	}
	if p.RequestID == "" || p.Detail == "" {
		tb.Errorf("got a problem without request id or detail: %s", a.body)
	}
	return p
}

const acquireBody = `{"key":{"tenant":"acme","program":"recon","target":{"type":"domain","id":"Example.COM."},` +
	`"actor":"crawler","operation":"scan"},"instance":"worker-7","ttl_ms":30000,"max_lifetime_ms":3600000,` +
	`"execution_id":"exec-1","job_id":"job-17","metadata":{"purpose":"nightly","a":"b"}}`

// acquired acquires the key of acquireBody and returns the lease.
func (r *rig) acquired(tb testing.TB, requestID string) *api.Lease {
	tb.Helper()
	a := r.post(tb, "/leases", acquireBody, api.HeaderIdempotencyKey, requestID)
	return read[api.LeaseReply](tb, a, http.StatusCreated).Lease
}

// eventually waits until ok answers true, and fails the test when it does not.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("never happened: %s", what)
		}
	}
}

// waiters returns how many requests wait for a key, from the store itself.
func (r *rig) waiters(tb testing.TB) int64 {
	tb.Helper()
	h, err := r.store.Store.Health(tb.Context(), &contract.HealthRequest{Namespace: "default"})
	if err != nil {
		tb.Fatal(err)
	}
	return h.Waiters
}

// rawPost is call without a Content-Type of its own.
func (r *rig) rawPost(tb testing.TB, path, body string, header http.Header) answer {
	tb.Helper()
	request := httptest.NewRequestWithContext(tb.Context(), http.MethodPost, path, strings.NewReader(body))
	request.Header = header
	recorder := httptest.NewRecorder()
	r.Handler().ServeHTTP(recorder, request)
	return answer{status: recorder.Code, header: recorder.Header(), body: recorder.Body.String()}
}

// newExchange returns an exchange that has a request and nothing else.
func newExchange(h *handler, r *http.Request) *exchange {
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = r
	return &exchange{h: h, c: c, r: r}
}

// stillStore answers every mutation with the same lease.
type stillStore struct {
	contract.Store
	lease *contract.Lease
}

func (s *stillStore) Acquire(context.Context, *contract.AcquireRequest) (contract.Result, error) {
	return contract.Result{Outcome: contract.OutcomeAcquired, Lease: s.lease}, nil
}

func (s *stillStore) Renew(context.Context, *contract.RenewRequest) (contract.Result, error) {
	return contract.Result{Outcome: contract.OutcomeRenewed, Lease: s.lease}, nil
}

func (s *stillStore) RenewBulk(_ context.Context, r *contract.RenewBulkRequest) (contract.RenewBulkResult, error) {
	out := contract.RenewBulkResult{Items: make([]contract.RenewItemResult, len(r.Leases))}
	for i := range out.Items {
		out.Items[i].Result = contract.Result{Outcome: contract.OutcomeRenewed, Lease: s.lease}
	}
	return out, nil
}

func (s *stillStore) Release(context.Context, *contract.ReleaseRequest) (contract.Result, error) {
	return contract.Result{Outcome: contract.OutcomeReleased, Lease: s.lease}, nil
}
