package client_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leased/client"
	"leased/gateway/api"
)

// silence makes this machine drop whatever comes for a connection, without a word,
// as one does that has lost its power.
func silence(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	drop := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
	if err != nil || failed != nil {
		t.Errorf("silence a connection: %v, %v", err, failed)
	}
}

// TestAcquire_serverDies: a server that falls silent during a wait, or before it has
// got the request, is left for another one long before the wait is over.
func TestAcquire_serverDies(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]bool{"during the wait": true, "before the request arrives": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conns := make(chan net.Conn, 1)
			var calls atomic.Int32
			var die func()
			dies := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if calls.Add(1) == 1 { // one that leaves the connection idle
					w.Header().Set("Content-Type", api.MediaType)
					_, _ = io.WriteString(w, granted().body)
					return
				}
				if !asked {
					t.Error("the request has arrived")
				}
				die()
				<-r.Context().Done()
			}))
			dies.Config.ConnState = func(conn net.Conn, s http.ConnState) {
				if s == http.StateNew {
					conns <- conn
				}
			}
			die = func() {
				_ = dies.Listener.Close()
				silence(t, <-conns)
			}
			dies.Start()
			defer dies.Close()
			defer dies.CloseClientConnections() // it hears nothing of their end
			lives := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", api.MediaType)
				_, _ = io.WriteString(w, granted().body)
			}))
			defer lives.Close()
			c, err := client.New(client.Options{Servers: []string{dies.URL, lives.URL}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := acquire(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if !asked {
				die()
			}
			before := time.Now()
			if _, err := acquire(t.Context(), c, func(r *client.AcquireRequest) { r.Wait = 2 * time.Minute }); err != nil {
				t.Errorf("after %v: %v", time.Since(before), err)
			}
			if took := time.Since(before); took > time.Minute {
				t.Errorf("the server was left after %v of a wait of 2m", took)
			}
		})
	}
}
