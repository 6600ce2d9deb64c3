package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func request(ctx context.Context, t *testing.T, via http.RoundTripper, url string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("ping"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := via.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	return res.Status + " " + string(content), err
}

// TestNode_Transport: a call reaches the handler of the node that it names, which
// is told who calls; a caller that goes away ends the call at the other node.
func TestNode_Transport(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cfg := testConfig(t.TempDir())
	cfg.Listen, cfg.Logger = "127.0.0.1:0", testLogger(t)
	n := lead(t, cfg, new(ledger))
	p := startPeer(t, n, "n2")
	via := roundTripper{p.http.out}

	got, err := request(testContext(t), t, via, "http://n1/a")
	if want := "421 Misdirected Request this node does not take calls yet\n"; got != want || err != nil {
		t.Errorf("before Serve: %q, %v, want %q", got, err, want)
	}
	entered, ended := make(chan struct{}), make(chan struct{})
	n.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(entered)
			<-r.Context().Done()
			close(ended)
			return
		}
		content, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, err = w.Write([]byte(PeerOf(r.Context()) + " " + r.URL.Path + " " + string(content)))
		if err != nil {
			t.Error(err)
		}
	}))
	got, err = request(testContext(t), t, via, "http://n1/a")
	if want := "200 OK n2 /a ping"; got != want || err != nil {
		t.Errorf("call: %q, %v, want %q", got, err, want)
	}

	ctx, cancel := context.WithCancel(context.Background())
	answer := make(chan error, 1)
	go func() {
		_, err := request(ctx, t, via, "http://n1/wait")
		answer <- err
	}()
	<-entered
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) || NotSent(err) {
		t.Errorf("cancelled call: %v, not sent %v, want %v of a request that was sent", err, NotSent(err), context.Canceled)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the call goes on after its caller left")
	}
	for _, url := range []string{"http://n9/", "https://n1/", "http://n2/"} {
		if _, err := request(testContext(t), t, via, url); err == nil || !NotSent(err) {
			t.Errorf("call to %s: %v, want an error that says that nothing was sent", url, err)
		}
	}
	p.stop(t)
	stop(t, n)
}

// TestPeerPort_refusals: each side says why it does not talk.
func TestPeerPort_refusals(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Listen, cfg.Logger = "127.0.0.1:0", testLogger(t)
	n := lead(t, cfg, new(ledger))
	server, cluster := string(n.raftID), n.Status().ClusterID
	tests := map[string]struct {
		self      membership
		protocol  protocol
		to        string
		code, why string // empty: no refusal
	}{
		"raft":                 {membership{"n2@x", cluster, true}, protoRaft, server, "", ""},
		"calls":                {membership{"n2@x", cluster, true}, protoCalls, "n1", "", ""},
		"a node in no cluster": {membership{"n2@x", "", false}, protoMembers, "n1", "", ""},
		"a foreign cluster":    {membership{"n2@x", "other", true}, protoRaft, server, codeCluster, "not to \"other\""},
		"a foreign cluster's questions": {membership{"n2@x", "other", true}, protoMembers, "n1", codeCluster,
			"not to \"other\""},
		"raft to an older folder": {membership{"n2@x", cluster, true}, protoRaft, "n1@lost", codeNode, "not n1@lost"},
		"raft to a node id":       {membership{"n2@x", cluster, true}, protoRaft, "n1", codeNode, "not n1"},
		"another node":            {membership{"n2@x", cluster, true}, protoCalls, "n3", codeNode, "not n3"},
		"the same id":             {membership{"n1@x", cluster, true}, protoCalls, "n1", codeNode, "two nodes have the same id"},
		"no id":                   {membership{"", cluster, true}, protoCalls, "n1", codeNode, "want 1 to 64 characters"},
		"an unknown protocol":     {membership{"n2@x", cluster, true}, "carrier pigeons", "n1", codeVersion, "unknown protocol"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := Config{NodeID: "n2", DataDir: "unused", Listen: "127.0.0.1:0", Logger: testLogger(t)}.complete()
			if err != nil {
				t.Fatal(err)
			}
			book := newAddresses(map[string]string{nodeOf(test.to): n.address})
			port, err := listenPeers(testContext(t), cfg, book, func() membership { return test.self })
			if err != nil {
				t.Fatal(err)
			}
			defer port.Close()
			conn, err := port.dial(testContext(t), test.protocol, test.to)
			if test.code == "" {
				if err != nil {
					t.Fatalf("dial = %v", err)
				}
				if conn.peer != server {
					t.Errorf("connected to %q, want %q", conn.peer, server)
				}
				_ = conn.Close()
				return
			}
			var no *refusal
			if !errors.As(err, &no) || no.code != test.code || !strings.Contains(no.reason, test.why) {
				t.Errorf("dial = %v, want it refused for %s: …%s…", err, test.code, test.why)
			}
		})
	}
}

// TestNode_Transport_restarted: a connection that was made ahead, and died with the
// process at its other end before it was used, costs no call.
func TestNode_Transport_restarted(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Listen, cfg.Logger = "127.0.0.1:0", testLogger(t)
	n := lead(t, cfg, new(ledger))
	n.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	p := startPeer(t, n, "n2")

	hold := make(chan struct{})
	first := make(chan *watched, 1)
	p.port.dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		w := &watched{Conn: conn, ready: make(chan struct{}), closed: make(chan struct{})}
		select {
		case <-hold: // not the first
		case first <- w:
			<-hold
		}
		return w, nil
	}
	// A caller that leaves while its connection is made leaves it in store, unused.
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		_, err := request(ctx, t, roundTripper{p.http.out}, "http://n1/")
		left <- err
	}()
	unused := <-first
	cancel()
	if err := <-left; !NotSent(err) {
		t.Fatalf("a call that ended before it had a connection: %v, want it not sent", err)
	}
	close(hold)
	<-unused.ready
	n.port.cut("n2")
	<-unused.closed

	got, err := request(testContext(t), t, roundTripper{p.http.out}, "http://n1/")
	if want := "200 OK ping"; got != want || err != nil {
		t.Errorf("call after the end of an unused connection: %q, %v, want %q", got, err, want)
	}
	p.stop(t)
	stop(t, n)
}

// watched is a connection that tells when HTTP begins on it, and when its user
// closes it.
type watched struct {
	net.Conn
	once          sync.Once
	ready, closed chan struct{}
}

// Write implements net.Conn.
func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	if bytes.HasPrefix(b, []byte("PRI * HTTP/2.0")) {
		close(w.ready)
	}
	return n, err
}

// Close implements net.Conn.
func (w *watched) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}
