package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"leased/client"
	"leased/gateway/api"
)

// step is how the fake network answers one request: with a status and a body,
// with an error before or after a connection was there, or not at all.
type step struct {
	status    int
	body      string
	mediaType string // empty: a problem's or JSON, by status
	header    http.Header
	dialError bool
	dialHang  bool // no connection, and no error either
	cut       bool // the connection ends after the request was sent
	cutBody   bool // the connection ends within the answer's body
	stays     bool // the answer's body goes on, and nothing more comes
	hang      bool
	takes     time.Duration
}

// request is one request as the fake network saw it.
type request struct {
	at     time.Duration // since the network was made
	server string
	method string
	path   string
	query  url.Values
	id     string
	auth   string
	after  string // Last-Event-ID
	body   string
}

// network is a RoundTripper that follows a script; its last step repeats. It
// never touches a socket, so that tests run on synctest's clock.
type network struct {
	start  time.Time
	mu     sync.Mutex
	script []step
	seen   []request
}

func newNetwork(script ...step) *network { return &network{start: time.Now(), script: script} }

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	n.mu.Lock()
	n.seen = append(n.seen, request{
		at: time.Since(n.start), server: r.URL.Host, method: r.Method, path: r.URL.EscapedPath(), query: r.URL.Query(),
		id: r.Header.Get("Idempotency-Key"), auth: r.Header.Get("Authorization"),
		after: r.Header.Get(api.HeaderLastEventID), body: string(body),
	})
	s := n.script[min(len(n.seen), len(n.script))-1]
	n.mu.Unlock()

	if s.dialError {
		return nil, errors.New("connection refused")
	}
	if s.dialHang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if s.takes > 0 || s.hang {
		pause := s.takes
		if s.hang {
			pause = 24 * time.Hour
		}
		select {
		case <-time.After(pause):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if s.cut {
		return nil, io.ErrUnexpectedEOF
	}
	header := s.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	mediaType := api.MediaType
	if s.status >= 300 {
		mediaType = api.ProblemMediaType
	}
	if s.mediaType != "" {
		mediaType = s.mediaType
	}
	header.Set("Content-Type", mediaType)
	var reply io.Reader = strings.NewReader(s.body)
	if s.cutBody {
		reply = io.MultiReader(reply, brokenReader{})
	}
	if s.stays {
		reply = io.MultiReader(reply, silentReader{r.Context().Done()})
	}
	return &http.Response{StatusCode: s.status, Header: header, Body: io.NopCloser(reply), Request: r}, nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// silentReader has nothing until its request is given up.
type silentReader struct{ over <-chan struct{} }

func (s silentReader) Read([]byte) (int, error) {
	<-s.over
	return 0, context.Canceled
}

// requests returns what the network saw so far.
func (n *network) requests() []request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]request(nil), n.seen...)
}

// client returns a client on the network.
func (n *network) client(t *testing.T, change ...func(*client.Options)) *client.Client {
	t.Helper()
	o := client.Options{Servers: []string{"http://a:1"}, HTTPClient: &http.Client{Transport: n}}
	for _, f := range change {
		f(&o)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// problem is the step in which a gateway refuses.
func problem(code api.Code, change ...func(*api.Problem)) step {
	p := api.NewProblem(code, "from-server", "as the server says")
	for _, f := range change {
		f(p)
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return step{status: p.Status, body: string(text)}
}

// granted is the step in which a gateway grants.
func granted() step {
	return step{status: http.StatusCreated, body: `{"outcome":"acquired","lease":{"lease_id":"L","token":42,"expires_in_ms":30000}}`}
}
