package client_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
)

// forgetful is a network that forgets connections: nothing passes any more on
// those that there are, which neither end can tell, while new ones are well.
type forgetful struct {
	net.Listener
	target  string
	age     atomic.Int32 // of the connections that still work
	running sync.WaitGroup
	mu      sync.Mutex
	all     []net.Conn
}

func newForgetful(t *testing.T, target string) *forgetful {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &forgetful{Listener: l, target: target}
	n.running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			n.mu.Lock()
			n.all = append(n.all, near, far)
			n.mu.Unlock()
			age := n.age.Load()
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				n.running.Go(func() { n.pass(pair[0], pair[1], age) })
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		n.mu.Lock()
		for _, c := range n.all {
			_ = c.Close()
		}
		n.mu.Unlock()
		n.running.Wait()
	})
	return n
}

func (n *forgetful) pass(to, from net.Conn, age int32) {
	buf := make([]byte, 32<<10)
	for {
		read, err := from.Read(buf)
		if n.age.Load() == age {
			if _, err := to.Write(buf[:read]); err != nil {
				return
			}
			if err != nil {
				_ = to.Close()
			}
		}
		if err != nil {
			return
		}
	}
}

// TestClient_forgottenConnection: a connection of which the network knows nothing
// any more costs one attempt, however many there are.
func TestClient_forgottenConnection(t *testing.T) {
	t.Parallel()
	const attempt = time.Second
	const connections = 8
	var (
		n       atomic.Int32
		arrived sync.WaitGroup
	)
	arrived.Add(connections)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n.Add(1) <= connections { // each of the first has a connection of its own
			arrived.Done()
			arrived.Wait()
		}
		w.Header().Set("Content-Type", api.MediaType)
		_, _ = io.WriteString(w, granted().body)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	network := newForgetful(t, strings.TrimPrefix(server.URL, "https://"))
	http.DefaultClient.CloseIdleConnections() // as any use does, it sets up HTTP/2 in the transport that is copied
	c, err := client.New(client.Options{Servers: []string{"https://" + network.Addr().String()}, AttemptTimeout: attempt})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client.TransportOf(c).TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			if _, err := acquire(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	network.age.Add(1)
	ctx, cancel := context.WithTimeout(t.Context(), 3*attempt)
	defer cancel()
	if _, err := acquire(ctx, c); err != nil {
		t.Errorf("after the network forgot the connection: %v", err)
	}
}
