package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"leased/gateway/api"
)

// eventServer streams each of its bodies once and then breaks off; the last one
// stays open. Other requests are those of a key.
type eventServer struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	asked  []string
	open   chan struct{} // closed when the last body was sent
}

func newEventServer(t *testing.T, bodies ...string) *eventServer {
	t.Helper()
	s := &eventServer{bodies: bodies, open: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *eventServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	q.Del("timeout")
	text, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.asked = append(s.asked, strings.TrimSpace(r.Method+" "+r.URL.EscapedPath()+" "+q.Encode()+" "+r.Header.Get(api.HeaderLastEventID)+" "+string(text)))
	if !strings.HasSuffix(r.URL.Path, "/events") {
		s.mu.Unlock()
		w.Header().Set("Content-Type", api.MediaType)
		_ = json.MarshalWrite(w, api.ResolveReply{KeyID: "K"})
		return
	}
	body, last := s.bodies[0], len(s.bodies) == 1
	if !last {
		s.bodies = s.bodies[1:]
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", api.EventStreamMediaType)
	_, _ = io.WriteString(w, body)
	if last {
		_ = http.NewResponseController(w).Flush()
		close(s.open)
		<-r.Context().Done()
	}
}

const streamBegins = "retry: 1000\nid: 0\n\n"

// streamed writes events as a gateway streams them.
func streamed(t *testing.T, events ...any) string {
	t.Helper()
	var text strings.Builder
	for _, v := range events {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		switch ev := v.(type) {
		case api.Event:
			fmt.Fprintf(&text, "id: %s\nevent: %s\ndata: %s\n\n", ev.ID, ev.Event, data)
		case api.Gap:
			fmt.Fprintf(&text, "id: %s\nevent: gap\ndata: %s\n\n", ev.ID, data)
		case *api.Problem:
			fmt.Fprintf(&text, "event: end\ndata: %s\n\n", data)
		}
	}
	return text.String()
}

func watched(kind string, change ...func(*api.Event)) api.Event {
	ev := events().Events[1]
	ev.ID, ev.Event, ev.Key = "1-"+kind, kind, exampleLease().Key
	for _, f := range change {
		f(&ev)
	}
	return ev
}

// TestWatch holds what the command asks, prints and exits with.
func TestWatch(t *testing.T) {
	t.Parallel()
	story := streamed(t, watched("acquired"), watched("renewed"), watched("expired", func(ev *api.Event) { ev.Principal = "" }),
		watched("revoked", func(ev *api.Event) {
			ev.Owner, ev.Principal, ev.Reason, ev.JobID = "\x1b[31mred", "admin", "incident\n4711", "a-job-with-a-long-name"
		}))
	lost := streamed(t, api.Gap{ID: "9", Event: "gap", Namespace: "default"}, watched("released"))
	for _, tt := range []struct {
		name   string
		args   string
		bodies []string
		code   int
	}{
		{"events", "watch --limit 4", []string{streamBegins + story}, 0},
		{"json", "watch --limit 5 --json", []string{streamBegins + story + lost}, 0},
		{"gap", "watch --limit 1", []string{streamBegins + lost}, 0},
		{"filters", "watch --owner o --instance i --lease L --event expired,revoked --after 7 --limit 4", []string{streamBegins + story}, 0},
		{"key", "watch --limit 4 --tenant acme --target domain:Example.COM --actor crawler", []string{streamBegins + story}, 0},
		{"key-id", "watch K --limit 4", []string{streamBegins + story}, 0},
		{"resumed", "watch --limit 5", []string{
			streamBegins + story + streamed(t, refusal(api.CodeClosed, "the gateway is shutting down")), streamBegins + streamed(t, watched("released")),
		}, 0},
		{"denied", "watch", []string{streamBegins + story + streamed(t, refusal(api.CodeDenied, "needs the right"))}, 6},
		{"timeout", "watch --timeout 2s", []string{streamBegins}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newEventServer(t, tt.bodies...)
			got := command(t.Context(), []string{"LEASED_SERVER=" + s.URL}, strings.Fields(tt.args)...)
			if got.code != tt.code {
				t.Errorf("got exit code %d, want %d", got.code, tt.code)
			}
			golden(t, "watch/"+tt.name, "$ leased "+tt.args+"\n"+strings.Join(s.asked, "\n")+"\n"+got.String())
		})
	}
}

// TestWatch_interrupted: to interrupt it is how it ends.
func TestWatch_interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newEventServer(t, streamBegins+streamed(t, watched("acquired")))
	go func() {
		<-s.open
		cancel()
	}()
	if got := command(ctx, []string{"LEASED_SERVER=" + s.URL}, "watch"); got.code != exitDone || got.stderr != "" {
		t.Errorf("got %v, want exit 0 and no complaint", got)
	}
}

func TestWatch_noServer(t *testing.T) {
	got := command(t.Context(), []string{"LEASED_SERVER=http://127.0.0.1:1"}, "watch")
	if got.code != exitUnavailable || got.stdout != "" {
		t.Errorf("got %v, want exit 5", got)
	}
}
