package client_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"leased/client"
	"leased/gateway/api"
)

// TestClient_cluster_unreachable: what is done to a cluster is sent once, and to the
// first server that can be reached; one that took it is not followed by another.
func TestClient_cluster_unreachable(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + gone.Addr().String()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	backup := []byte("the content of a backup")
	sum := sha256.Sum256(backup)
	var asked atomic.Int32
	var cut atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if cut.Load() {
			panic(http.ErrAbortHandler)
		}
		body, _ := io.ReadAll(r.Body) // an error makes it another body
		w.Header().Set("Content-Type", api.MediaType)
		switch {
		case strings.HasSuffix(r.URL.Path, "/backup"):
			_, _ = w.Write(append(bytes.Clone(backup), sum[:]...)) // the client sees the rest missing
		case strings.HasSuffix(r.URL.Path, "/restore"):
			if !bytes.Equal(body, backup) {
				w.WriteHeader(http.StatusBadRequest)
			}
			_, _ = io.WriteString(w, `{"outcome":"restored"}`) // as above
		default:
			_, _ = io.WriteString(w, `{"outcome":"transferred"}`) // as above
		}
	}))
	defer s.Close()
	for name, do := range map[string]func(*client.Client) error{
		"transfer": func(c *client.Client) error { return c.Transfer(t.Context(), "n2") },
		"backup":   func(c *client.Client) error { return c.Backup(t.Context(), io.Discard) },
		"restore": func(c *client.Client) error {
			_, err := c.Restore(t.Context(), bytes.NewReader(backup))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := func(servers ...string) error {
				t.Helper()
				c, err := client.New(client.Options{Servers: servers})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				asked.Store(0)
				return do(c)
			}
			if err := call(dead, s.URL); err != nil || asked.Load() != 1 {
				t.Errorf("one server is dead: got error %v, and the other was asked %d times", err, asked.Load())
			}
			if err := call(dead, dead); !errors.Is(err, client.ErrUnavailable) {
				t.Errorf("both are dead: got error %v, want %v", err, client.ErrUnavailable)
			}
			cut.Store(true)
			if err := call(s.URL, s.URL+"/"); err == nil || asked.Load() != 1 {
				t.Errorf("the answer was lost: got error %v, and the servers were asked %d times, want once", err, asked.Load())
			}
			cut.Store(false)
		})
	}
}
