package gateway

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"leased/contract"
	"leased/gateway/api"
)

func TestListen_inUse(t *testing.T) {
	v := serve(t, ServerOptions{})
	_, err := v.Listen(t.Context(), ServerOptions{Address: strings.TrimPrefix(v.url, "http://")})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v, want that the address is in use", err)
	}
}

func TestServer_Close(t *testing.T) {
	s, err := newRig(t).Listen(t.Context(), ServerOptions{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close of a server that never ran: %v", err)
	}
	var d net.Dialer
	if c, err := d.DialContext(t.Context(), "tcp", s.Address().String()); err == nil {
		_ = c.Close()
		t.Error("the address still takes connections")
	}
}

// TestServer_h2c: HTTP/2 without TLS on loopback, with many requests on one
// connection, a waiting one among them.
func TestServer_h2c(t *testing.T) {
	v := serve(t, ServerOptions{})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	post := func(body, id string) (*http.Response, error) {
		return client.Do(v.request(t, t.Context(), "/leases", body, id))
	}
	reply, err := post(`{`+someKey+`,"instance":"holder"}`, "r-1")
	if err != nil {
		t.Fatal(err)
	}
	reply.Body.Close()
	if reply.ProtoMajor != 2 || reply.StatusCode != http.StatusCreated {
		t.Fatalf("got %s %d, want HTTP/2 201", reply.Proto, reply.StatusCode)
	}
	statuses := make(chan int, 1)
	go func() {
		reply, err := post(waitBody, "r-2")
		if err != nil {
			statuses <- 0
			return
		}
		reply.Body.Close()
		statuses <- reply.StatusCode
	}()
	eventually(t, "the request waits", func() bool { return v.waiters(t) == 1 })
	reply, err = post(`{`+someKey+`,"instance":"other"}`, "r-3")
	if err != nil {
		t.Fatal(err)
	}
	reply.Body.Close()
	if reply.StatusCode != http.StatusConflict {
		t.Errorf("beside a waiting request got status %d, want 409", reply.StatusCode)
	}
	v.Drain()
	if got := <-statuses; got != http.StatusServiceUnavailable {
		t.Errorf("the waiting request got status %d, want 503", got)
	}
}

// TestServer_bound: a shutdown does not wait for ever for a request at work; it
// says that it cut one.
func TestServer_bound(t *testing.T) {
	v := serve(t, ServerOptions{ShutdownTimeout: 50 * time.Millisecond})
	working := make(chan struct{})
	v.store.renew = func(ctx context.Context, _ *contract.RenewRequest) (contract.Result, error) {
		close(working)
		<-ctx.Done() // ends when the connection is cut
		return contract.Result{}, contract.Lost(ctx)
	}
	answers := send(v.request(t, t.Context(), "/leases/"+someLease+"/renew?timeout=5m", `{"token":7,"instance":"w"}`, "r-1"))
	<-working
	v.stop()
	if err := v.ended(t); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the bound", err)
	}
	receive(t, answers)
}

// TestServer_inFlight: a request at work finishes during a shutdown.
func TestServer_inFlight(t *testing.T) {
	v := serve(t, ServerOptions{})
	working, finish := make(chan struct{}), make(chan struct{})
	v.store.renew = func(ctx context.Context, r *contract.RenewRequest) (contract.Result, error) {
		close(working)
		<-finish
		return v.store.Store.Renew(ctx, r)
	}
	answers := send(v.request(t, t.Context(), "/leases/"+someLease+"/renew", `{"token":7,"instance":"w"}`, "r-1"))
	<-working
	v.stop()
	eventually(t, "the gateway drains", v.service.drainer.isDraining)
	close(finish)
	wantProblem(t, receive(t, answers), api.CodeNotFound)
	if err := v.ended(t); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// TestServer_keepAlive: the deadlines of one request do not reach into the next
// on the same connection, and "100 Continue" is sent.
func TestServer_keepAlive(t *testing.T) {
	v := serve(t, ServerOptions{})
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(v.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines := bufio.NewReader(conn)
	body := `{` + someKey + `}`
	head := "POST /v1/namespaces/default/resolve HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
	for _, expect := range []bool{false, true, false} {
		request := head + strconv.Itoa(len(body)) + "\r\n"
		if expect {
			request += "Expect: 100-continue\r\n"
		}
		if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
			t.Fatal(err)
		}
		if expect {
			if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
				t.Fatalf("got %q, %v; want 100 Continue", line, err)
			}
			_, _ = lines.ReadString('\n')
		}
		if _, err := io.WriteString(conn, body); err != nil {
			t.Fatal(err)
		}
		reply, err := http.ReadResponse(lines, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, reply.Body)
		reply.Body.Close()
		if reply.StatusCode != http.StatusOK {
			t.Errorf("got status %d", reply.StatusCode)
		}
	}
}

// TestServer_deadlines: a reply that nobody reads does not hold its request for
// longer than the write timeout; a body that never comes is given up as well.
// Both bounds are too long for a test, so their deadlines are what it looks at.
func TestServer_deadlines(t *testing.T) {
	r := newRig(t)
	w := &deadlineWriter{header: http.Header{}}
	// A connection that had a reply just now: the deadline for 100 Continue, which
	// comes after that, is shorter than the reply's.
	ctx := context.WithValue(t.Context(), connectionKey{}, &connection{limited: time.Now()})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/namespaces/default/resolve", strings.NewReader(`{`+someKey+`}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", api.MediaType)
	request.Header.Set("Expect", "100-continue")
	before := time.Now()
	r.Handler().ServeHTTP(w, request)
	if len(w.reads) != 2 || w.reads[0].Before(before.Add(bodyTimeout)) || !w.reads[1].IsZero() {
		t.Errorf("got read deadlines %v, want one after %v and then none", w.reads, bodyTimeout)
	}
	if len(w.writes) != 2 || w.writes[1].Before(before.Add(writeTimeout)) {
		t.Errorf("got write deadlines %v, want one for 100 Continue and one for the reply, after %v", w.writes, writeTimeout)
	}
}

// TestServer_deadlineOfUnread: the rest of a body that a route does not read has less
// time than the reply, which comes after it.
func TestServer_deadlineOfUnread(t *testing.T) {
	r := newRig(t)
	w := &deadlineWriter{header: http.Header{}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	r.Handler().ServeHTTP(w, request)
	if len(w.reads) != 2 || len(w.writes) != 1 || w.reads[1].Before(before.Add(bodyTimeout/4)) || w.reads[1].After(w.writes[0].Add(-writeTimeout/2)) {
		t.Errorf("got read deadlines %v, write deadlines %v; want the last one for the body at least %v before that for the reply",
			w.reads, w.writes, writeTimeout/2)
	}
}

// deadlineWriter is a ResponseWriter that notes its deadlines.
type deadlineWriter struct {
	header        http.Header
	reads, writes []time.Time
}

func (w *deadlineWriter) Header() http.Header               { return w.header }
func (w *deadlineWriter) Write(b []byte) (int, error)       { return len(b), nil }
func (w *deadlineWriter) WriteHeader(int)                   {}
func (w *deadlineWriter) SetReadDeadline(t time.Time) error { w.reads = append(w.reads, t); return nil }
func (w *deadlineWriter) SetWriteDeadline(t time.Time) error {
	w.writes = append(w.writes, t)
	return nil
}

// TestConnection_limitDue: a busy connection's deadline is set anew before half of
// it is over, and not with each reply.
func TestConnection_limitDue(t *testing.T) {
	var c connection
	start := time.Now()
	for _, tt := range []struct {
		after time.Duration
		want  bool
	}{
		{0, true},
		{time.Second, false},
		{writeTimeout/2 - 1, false},
		{writeTimeout / 2, true},
		{writeTimeout/2 + time.Second, false},
		{time.Hour, true},
	} {
		if got := c.limitDue(start.Add(tt.after)); got != tt.want {
			t.Errorf("due %v after the first reply: %v, want %v", tt.after, got, tt.want)
		}
	}
}
