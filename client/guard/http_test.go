package guard_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/client/guard"
)

// resource is a server whose resource /x is fenced by the key "jobs/x".
func resource(t *testing.T, register guard.Register, next http.HandlerFunc) *httptest.Server {
	t.Helper()
	fence, err := guard.NewHTTP(guard.HTTPOptions{
		Register: register, Key: func(r *http.Request) string { return "jobs" + r.URL.Path },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(fence.Wrap(next))
	t.Cleanup(server.Close)
	return server
}

// put sends a request with the given headers, in turns name and value.
func put(t *testing.T, server *httptest.Server, headers ...string) (status int, problem map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/x", strings.NewReader("content"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNoContent {
		return res.StatusCode, nil
	}
	if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("the content type is %q", got)
	}
	if err := json.NewDecoder(res.Body).Decode(&problem); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, problem
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	var written []guard.Fence
	stale := new(counter)
	server := resource(t, guard.NewMemory(stale), func(w http.ResponseWriter, r *http.Request) {
		f, ok := guard.FromContext(r.Context())
		if body, err := io.ReadAll(r.Body); !ok || err != nil || string(body) != "content" {
			t.Errorf("the handler got %v, %q, %v", ok, body, err)
		}
		written = append(written, f)
		w.WriteHeader(http.StatusNoContent)
	})
	for _, step := range []struct {
		headers []string
		status  int
		field   any
	}{
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "7"}, 204, nil},
		{[]string{"fence-key", "jobs/x", "fence-token", "7"}, 204, nil},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "6"}, 409, nil},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "10"}, 204, nil},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "9"}, 409, nil},
		{nil, 400, "Fence-Key"},
		{[]string{"Fence-Token", "11"}, 400, "Fence-Key"},
		{[]string{"Fence-Key", "jobs/x"}, 400, "Fence-Token"},
		{[]string{"Fence-Key", "jobs/y", "Fence-Token", "11"}, 400, "Fence-Key"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Key", "jobs/x", "Fence-Token", "11"}, 400, "Fence-Key"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "11", "Fence-Token", "12"}, 400, "Fence-Token"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", ""}, 400, "Fence-Token"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "0"}, 400, "Fence-Token"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "-1"}, 400, "Fence-Token"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "+11"}, 400, "Fence-Token"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "011"}, 400, "Fence-Token"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "11.0"}, 400, "Fence-Token"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "9007199254740992"}, 400, "Fence-Token"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "99999999999999999999"}, 400, "Fence-Token"},
		{[]string{"Fence-Key", "jobs/x", "Fence-Token", "10"}, 204, nil},
	} {
		status, problem := put(t, server, step.headers...)
		if status != step.status || problem["field"] != step.field {
			t.Errorf("%q: got %d %v, want %d, field %v", step.headers, status, problem, step.status, step.field)
		}
		if code := problem["code"]; status == 409 && code != "stale_token" || status == 400 && code != "invalid" {
			t.Errorf("%q: %d has the code %v", step.headers, status, code)
		}
	}
	want := []guard.Fence{{Key: "jobs/x", Token: 7}, {Key: "jobs/x", Token: 7}, {Key: "jobs/x", Token: 10}, {Key: "jobs/x", Token: 10}}
	if diff := cmp.Diff(want, written); diff != "" {
		t.Errorf("what came through (-want +got):\n%s", diff)
	}
	if stale.Load() != 2 {
		t.Errorf("%d were counted as stale, want 2", stale.Load())
	}
}

// TestHTTP_handover: the request of a new holder ends the context of the old
// holder's, and its handler begins when that one has returned, if by a panic.
func TestHTTP_handover(t *testing.T) {
	t.Parallel()
	old, ended := make(chan struct{}), make(chan error, 1)
	var running int // of one handler at a time: the race detector sees it otherwise
	server := resource(t, guard.NewMemory(nil), func(w http.ResponseWriter, r *http.Request) {
		if running++; running != 1 {
			t.Errorf("%d handlers at once", running)
		}
		defer func() { running-- }()
		if f, _ := guard.FromContext(r.Context()); f.Token == 7 {
			close(old)
			<-r.Context().Done()
			ended <- context.Cause(r.Context())
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/x", http.NoBody)
		if err != nil {
			t.Error(err)
			return
		}
		guard.Fence{Key: "jobs/x", Token: 7}.SetHeader(req.Header)
		if res, err := server.Client().Do(req); err == nil {
			_ = res.Body.Close()
			t.Errorf("the handler that panicked answered %d", res.StatusCode)
		}
	}()
	<-old
	if status, problem := put(t, server, "Fence-Key", "jobs/x", "Fence-Token", "8"); status != http.StatusNoContent {
		t.Errorf("the new holder: got %d %v", status, problem)
	}
	if err := <-ended; !errors.Is(err, guard.ErrStale) {
		t.Errorf("the old holder's context ends with %v, want ErrStale", err)
	}
}

// TestHTTP_oldWorkHangs: a request is told in time that older work does not end, and
// its own work has all the time that it needs.
func TestHTTP_oldWorkHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		register, hang := guard.NewMemory(nil), make(chan struct{})
		fence, err := guard.NewHTTP(guard.HTTPOptions{Register: register, Key: guard.KeyOfHeader})
		if err != nil {
			t.Fatal(err)
		}
		handler := fence.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if f, _ := guard.FromContext(r.Context()); f.Token == 7 {
				<-hang // whatever its context says
				return
			}
			time.Sleep(time.Hour)
			if err := r.Context().Err(); err != nil {
				t.Errorf("work that was let through has ended: %v", err)
			}
			w.WriteHeader(http.StatusNoContent)
		}))
		serve := func(token uint64) (int, time.Duration) {
			req, began := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/x", http.NoBody), time.Now()
			guard.Fence{Key: "jobs/x", Token: token}.SetHeader(req.Header)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			return w.Code, time.Since(began)
		}
		var old sync.WaitGroup
		old.Go(func() { serve(7) })
		synctest.Wait()
		if status, took := serve(8); status != http.StatusServiceUnavailable || took != 10*time.Second {
			t.Errorf("behind work that hangs: %d after %v, want 503 after 10s", status, took)
		}
		close(hang)
		old.Wait()
		if status, took := serve(8); status != http.StatusNoContent || took != time.Hour {
			t.Errorf("after it has ended: %d after %v, want 204", status, took)
		}
	})
}

// broken is a register that cannot be asked.
type broken struct{ err error }

func (b broken) Enter(context.Context, guard.Fence) (context.Context, func(), error) {
	return nil, nil, b.err
}

func TestHTTP_brokenRegister(t *testing.T) {
	t.Parallel()
	next := func(http.ResponseWriter, *http.Request) { t.Error("the request came through") }
	for err, want := range map[error]int{errors.New("secret"): 503, context.DeadlineExceeded: 503, guard.ErrInvalid: 400, guard.ErrStale: 409} {
		status, problem := put(t, resource(t, broken{err}, next), "Fence-Key", "jobs/x", "Fence-Token", "8")
		if detail, _ := problem["detail"].(string); status != want || strings.Contains(detail, "secret") {
			t.Errorf("%v: got %d %v, want %d", err, status, problem, want)
		}
	}
	for _, o := range []guard.HTTPOptions{{}, {Register: broken{}}, {Key: guard.KeyOfHeader}} {
		if _, err := guard.NewHTTP(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
