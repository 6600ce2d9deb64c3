package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"leased/gateway/api"
)

// served serves the rig's gateway on loopback and returns its address.
func (r *rig) served(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := r.Listen(ctx, ServerOptions{Address: "127.0.0.1:0", ShutdownTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s.Address().String()
}

// TestBody_neverComes: whatever a request is answered, its connection is not held
// for a body that stays away. What a route does not read net/http waits for before it
// replies.
func TestBody_neverComes(t *testing.T) {
	t.Parallel()
	r := newRig(t, withCluster(new(fakeCluster)))
	r.service.bodyTimeout = 100 * time.Millisecond
	address := r.served(t)
	const lease = "/v1/namespaces/default/leases"
	for request, want := range map[string]int{
		"POST " + lease + " " + api.MediaType:                       http.StatusBadRequest,
		"POST " + lease + " text/plain":                             http.StatusUnsupportedMediaType,
		"GET " + lease + " text/plain":                              http.StatusBadRequest,
		"PUT " + lease + " text/plain":                              http.StatusMethodNotAllowed,
		"POST /v1/namespaces/nope/leases " + api.MediaType:          http.StatusNotFound,
		"GET /v1/namespaces/default/events text/plain":              http.StatusBadRequest,
		"GET /v1/namespaces text/plain":                             http.StatusOK,
		"GET /v1/cluster text/plain":                                http.StatusOK,
		"GET /v1/cluster/backup text/plain":                         http.StatusOK,
		"DELETE /v1/cluster/members/n4 text/plain":                  http.StatusOK,
		"POST /v1/cluster/transfer " + api.MediaType:                http.StatusBadRequest,
		"POST /v1/cluster/restore " + api.BackupMediaType:           http.StatusInternalServerError, // the fake's error is of no kind
		"POST /v1/cluster/restore?timeout=x " + api.BackupMediaType: http.StatusBadRequest,
		"GET /healthz text/plain":                                   http.StatusOK,
		"GET /metrics text/plain":                                   http.StatusOK,
		"GET /nowhere text/plain":                                   http.StatusNotFound,
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			var method, path, kind string
			if _, err := fmt.Sscan(request, &method, &path, &kind); err != nil {
				t.Fatal(err)
			}
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\n{", method, path, kind); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(conn)
			reply, err := http.ReadResponse(lines, nil)
			if err != nil {
				t.Fatalf("no reply: %v", err)
			}
			defer reply.Body.Close()
			if reply.StatusCode != want {
				t.Errorf("got status %d, want %d", reply.StatusCode, want)
			}
			if _, err := io.Copy(io.Discard, reply.Body); err != nil {
				t.Errorf("the reply's body: %v", err)
			}
			// What may still come must not be taken for a request.
			if _, err := lines.ReadByte(); err != io.EOF {
				t.Errorf("after the reply: got %v, want the connection closed", err)
			}
		})
	}
}
