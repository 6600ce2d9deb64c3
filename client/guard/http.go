package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"leased/gateway/api"
)

// HTTPOptions configure an HTTP fence.
type HTTPOptions struct {
	Register Register
	// Key returns the key that fences what the request changes, from its path, say;
	// requests that name another one are refused. KeyOfHeader believes the request:
	// a client that names the wrong key is not fenced.
	Key func(*http.Request) string
}

// KeyOfHeader is a Key for HTTPOptions that takes what the request says.
func KeyOfHeader(r *http.Request) string { return r.Header.Get(HeaderKey) }

// HTTP is a fence in front of HTTP handlers.
type HTTP struct {
	register Register
	key      func(*http.Request) string
}

// NewHTTP returns a fence.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	if o.Register == nil || o.Key == nil {
		return nil, errors.New("guard: HTTPOptions need a Register and a Key")
	}
	return &HTTP{register: o.Register, key: o.Key}, nil
}

// Wrap returns next behind the fence. A request carries its fence in the headers
// Fence-Key and Fence-Token. It is answered a problem (RFC 9457), and next is not
// called, with
//
//	400 invalid      when one is missing, there twice, malformed, or of another key
//	409 stale_token  when a higher token was seen
//	503 unavailable  when older work has not ended within 10 seconds, or the register failed
//
// Otherwise next runs, and no other token of the key until it returns. It finds
// the fence with FromContext, and its context ends when a higher token arrives.
//
// What next starts and leaves behind is not fenced; neither is a write that
// reaches a database late. A SQL fence in its transaction does both.
func (h *HTTP) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, field, err := h.fence(r)
		if err != nil {
			refuseHTTP(w, api.CodeInvalid, field, err.Error())
			return
		}
		ctx, leave, err := h.enter(r.Context(), f)
		switch {
		case errors.Is(err, ErrStale):
			refuseHTTP(w, api.CodeStaleToken, "", "a higher token was seen for this key: the lease has ended, stop its work")
			return
		case errors.Is(err, ErrInvalid):
			refuseHTTP(w, api.CodeInvalid, HeaderKey, err.Error())
			return
		case err != nil:
			refuseHTTP(w, api.CodeUnavailable, "", "the request was not let through the fence in time")
			return
		}
		defer leave()
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, contextKey{}, f)))
	})
}

// enterWithin is how long a request waits for older work to end. net/http gives it no
// deadline, and old work that ignores its context would gather waiting requests.
const enterWithin = 10 * time.Second

// enter is Register.Enter within that time. What it returns is not bounded by it.
func (h *HTTP) enter(ctx context.Context, f Fence) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(enterWithin, func() { cancel(context.DeadlineExceeded) })
	work, leave, err := h.register.Enter(ctx, f)
	if err == nil && !late.Stop() {
		leave()
		err = context.DeadlineExceeded
	}
	if err != nil {
		late.Stop()
		cancel(nil)
		return nil, nil, err
	}
	return work, func() { leave(); cancel(nil) }, nil
}

type contextKey struct{}

// FromContext returns the fence of a request that Wrap has let through.
func FromContext(ctx context.Context) (Fence, bool) {
	f, ok := ctx.Value(contextKey{}).(Fence)
	return f, ok
}

// fence returns the request's fence. field names the header that is wrong.
func (h *HTTP) fence(r *http.Request) (f Fence, field string, err error) {
	for _, name := range []string{HeaderKey, HeaderToken} {
		switch n := len(r.Header.Values(name)); {
		case n == 0:
			return f, name, errors.New("this request has to carry the key and the token of a lease")
		case n > 1:
			return f, name, errors.New("the header is there more than once")
		}
	}
	f.Key = r.Header.Get(HeaderKey)
	if f.Key != h.key(r) {
		return f, HeaderKey, errors.New("another key fences this resource")
	}
	text := r.Header.Get(HeaderToken)
	f.Token, err = strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(f.Token, 10) != text {
		return f, HeaderToken, fmt.Errorf("%q is not a whole number", text)
	}
	if err := (Fence{Key: "any", Token: f.Token}).check(); err != nil {
		return f, HeaderToken, err
	}
	return f, HeaderKey, f.check()
}

func refuseHTTP(w http.ResponseWriter, code api.Code, field, detail string) {
	p := api.NewProblem(code, "", detail)
	p.Field = field
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte("{}") // a struct of strings and numbers; the status says it anyway
	}
	w.Header().Set("Content-Type", api.ProblemMediaType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	//nolint:gosec // it is JSON, and said to be; whoever asked may be gone
	_, _ = w.Write(append(body, '\n'))
}
