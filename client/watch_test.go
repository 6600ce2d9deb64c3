package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/client"
	"leased/gateway/api"
)

// told makes the step in which a gateway streams.
func told(blocks ...string) step {
	return step{status: 200, mediaType: api.EventStreamMediaType, body: strings.Join(blocks, "")}
}

func (s step) andStays() step { s.stays = true; return s }
func (s step) andBreaks() step {
	s.cutBody = true
	return s
}

func first(id string) string { return "retry: 1000\nid: " + id + "\n\n" }

func alive(id string) string { return ": keep-alive\nid: " + id + "\n\n" }

func renewal(id string) string {
	return fmt.Sprintf("id: %s\nevent: renewed\ndata: {\"id\":%q,\"event\":\"renewed\",\"lease_id\":\"L\",\"token\":7}\n\n", id, id)
}

func gap(id string) string {
	return fmt.Sprintf("id: %s\nevent: gap\ndata: {\"id\":%q,\"event\":\"gap\",\"namespace\":\"default\"}\n\n", id, id)
}

func end(code api.Code) string { return "event: end\ndata: " + problem(code).body + "\n\n" }

// loop runs a loop over events until there are n of them, and returns them as
// "name id", the calls back between them, and the error.
func loop(ctx context.Context, c *client.Client, r client.WatchRequest, n int) (seen []string, err error) {
	r.OnBegin = func(after string) { seen = append(seen, "begin "+after) }
	r.OnBreak = func(err error) { seen = append(seen, "break "+string(client.CodeOf(err))) }
	events := 0
	for ev, failed := range c.Watch(ctx, r) {
		if failed != nil {
			return seen, failed
		}
		seen = append(seen, ev.Event+" "+ev.ID)
		if events++; events == n {
			break
		}
	}
	return seen, nil
}

// TestWatch_resumes: whatever breaks a stream off, the next one begins where it
// had come to, on the next server.
func TestWatch_resumes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []step
		after []string // that each request resumes after
		want  []string
	}{
		{"cut before the first event", []step{told(first("1")), told(first("1"), renewal("2"))},
			[]string{"", "1"}, []string{"begin 1", "break unavailable", "begin 1", "renewed 2"}},
		{"cut after an event", []step{told(first("1"), renewal("2"), renewal("3")).andBreaks(), told(first("3"), renewal("4"))},
			[]string{"", "3"}, []string{"begin 1", "renewed 2", "renewed 3", "break unavailable", "begin 3", "renewed 4"}},
		{"cut within an event", []step{told(first("1"), strings.TrimSuffix(renewal("2"), "\n")).andBreaks(), told(first("1"), renewal("2"))},
			[]string{"", "1"}, []string{"begin 1", "break unavailable", "begin 1", "renewed 2"}},
		{"cut after events of others", []step{told(first("1"), alive("5")).andBreaks(), told(first("5"), renewal("6"))},
			[]string{"", "5"}, []string{"begin 1", "break unavailable", "begin 5", "renewed 6"}},
		{"the server closes", []step{told(first("1"), end(api.CodeClosed)), told(first("1"), renewal("2"))},
			[]string{"", "1"}, []string{"begin 1", "break closed", "begin 1", "renewed 2"}},
		{"several failures", []step{told(first("1")), {dialError: true}, problem(api.CodeUnavailable), {status: 200, body: "hello"}, told(first("1"), renewal("2"))},
			[]string{"", "1", "1", "1", "1"}, []string{"begin 1", "break unavailable", "begin 1", "renewed 2"}},
		{"silent", []step{told(first("1"), renewal("2")).andStays(), told(first("2"), renewal("3"))},
			[]string{"", "2"}, []string{"begin 1", "renewed 2", "break unavailable", "begin 2", "renewed 3"}},
		{"silent from the first", []step{told().andStays(), {hang: true}, told(first("1"), renewal("2"))},
			[]string{"", "", ""}, []string{"begin 1", "renewed 2"}},
		{"a gap", []step{told(first("1"), gap("9")), told(first("9"), renewal("10"))},
			[]string{"", "9"}, []string{"begin 1", "gap 9", "break unavailable", "begin 9", "renewed 10"}},
		{"another store", []step{
			told(first("1"), renewal("2")),
			problem(api.CodeInvalid, func(p *api.Problem) { p.Field = api.HeaderLastEventID }), told(first("77"), renewal("78")),
		}, []string{"", "2", ""}, []string{"begin 1", "renewed 2", "break unavailable", "begin 77", "gap 77", "renewed 78"}},
		{"an event of a later release", []step{told(first("1"), "id: 2\nevent: moved\ndata: x\n\n", renewal("3"))},
			[]string{""}, []string{"begin 1", "renewed 3"}},
		{"lines as others end them", []step{told("id:1\r\n\r\n", strings.ReplaceAll(renewal("2"), "\n", "\r\n"))},
			[]string{""}, []string{"begin 1", "renewed 2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(tt.steps...)
				c := n.client(t, func(o *client.Options) { o.Servers = []string{"http://a:1", "http://b:1"} })
				events := 0
				for _, line := range tt.want {
					if !strings.HasPrefix(line, "b") {
						events++
					}
				}
				got, err := loop(t.Context(), c, client.WatchRequest{}, events)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("told (-want +got):\n%s", diff)
				}
				var after []string
				for i, r := range n.requests() {
					after = append(after, r.after)
					if i > 0 && r.server == n.requests()[i-1].server && tt.name != "another store" {
						t.Errorf("request %d goes to %s again, which did not serve", i, r.server)
					}
				}
				if diff := cmp.Diff(tt.after, after); diff != "" {
					t.Errorf("resumed after (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestWatch_request holds what is sent to what was asked for.
func TestWatch_request(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(told(first("1"), renewal("2")))
		c := n.client(t, func(o *client.Options) { o.Token = "secret" })
		r := client.WatchRequest{Namespace: "a/b", Owner: "o&o", Instance: "i", LeaseID: "L", KeyID: "K", Events: []string{"expired", "revoked"}, After: "0"}
		if _, err := loop(t.Context(), c, r, 1); err != nil {
			t.Fatal(err)
		}
		got := n.requests()[0]
		got.query.Del("timeout")
		want := "GET /v1/namespaces/a%2Fb/events event=expired%2Crevoked&instance=i&key_id=K&lease_id=L&owner=o%26o Bearer secret 0 "
		if line := strings.Join([]string{got.method, got.path, got.query.Encode(), got.auth, got.after, got.id}, " "); line != want {
			t.Errorf("sent %q, want %q", line, want)
		}
	})
}

// TestWatch_emptyEvent: an event without a name, as from a setting that is not there,
// is left to the server to refuse. Left out it would show everything.
func TestWatch_emptyEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(told(first("1"), renewal("2")))
		if _, err := loop(t.Context(), n.client(t), client.WatchRequest{Events: []string{""}}, 1); err != nil {
			t.Fatal(err)
		}
		query := n.requests()[0].query
		if event, sent := query["event"]; !sent || event[0] != "" {
			t.Errorf("sent %q, want an empty event", query.Encode())
		}
	})
}

// TestWatch_refused: what does not get better ends the loop, with the reason.
func TestWatch_refused(t *testing.T) {
	place := problem(api.CodeInvalid, func(p *api.Problem) { p.Field = api.HeaderLastEventID })
	for _, tt := range []struct {
		name  string
		steps []step
		want  error
		after string
	}{
		{"denied", []step{problem(api.CodeDenied)}, client.ErrDenied, ""},
		{"no such namespace", []step{problem(api.CodeUnknownNamespace)}, client.ErrUnknownNamespace, ""},
		{"a place that nobody gave", []step{place}, client.ErrInvalid, "x"},
		{"rights that end", []step{told(first("1"), end(api.CodeDenied))}, client.ErrDenied, ""},
		{"a defect", []step{told(first("1"), end(api.CodeInternal))}, client.ErrInternal, ""},
		{"no JSON", []step{told(first("1"), "id: 2\nevent: renewed\ndata: {\n\n")}, client.ErrInternal, ""},
		{"no lease", []step{told(first("1"), "id: 2\nevent: renewed\ndata: {\"id\":\"2\",\"event\":\"renewed\"}\n\n")}, client.ErrInternal, ""},
		{"another id", []step{told(first("1"), "id: 9\n"+strings.SplitN(renewal("2"), "\n", 2)[1])}, client.ErrInternal, ""},
		{"a gap of nothing", []step{told(first("1"), "id: 2\nevent: gap\ndata: []\n\n")}, client.ErrInternal, ""},
		{"an end without a reason", []step{told(first("1"), "event: end\ndata: {}\n\n")}, client.ErrInternal, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(tt.steps...)
				_, err := loop(t.Context(), n.client(t), client.WatchRequest{After: tt.after}, 1)
				if !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if got := len(n.requests()); got != 1 {
					t.Errorf("%d requests, want 1", got)
				}
			})
		})
	}
}

// TestWatch_ends: a loop that has begun ends with its context and no error; one
// that has not says why.
func TestWatch_ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := newNetwork(told(first("1"), renewal("2")), step{dialError: true})
		got, err := loop(ctx, n.client(t), client.WatchRequest{}, 9)
		want := []string{"begin 1", "renewed 2", "break unavailable"}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v; told (-want +got):\n%s", err, diff)
		}
		if ctx.Err() == nil {
			t.Error("the loop ended before its context")
		}
		if got := len(n.requests()); got < 20 || got > 60 {
			t.Errorf("%d attempts in a minute, want some and ever fewer", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := loop(ctx, newNetwork(step{dialError: true}).client(t), client.WatchRequest{}, 1)
		if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want unavailable until the deadline", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(step{dialError: true})
		_, err := loop(t.Context(), n.client(t, func(o *client.Options) { o.RetryFor = 2 * time.Second }), client.WatchRequest{}, 1)
		if took := time.Since(n.start); !errors.Is(err, client.ErrUnavailable) || took > 2*time.Second {
			t.Errorf("got %v after %v, want unavailable within 2 s", err, took)
		}
	})
}

// TestWatch_pauses: a stream that begins and ends at once, again and again, is
// not asked for without a pause.
func TestWatch_pauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := newNetwork(told(first("1"), gap("1"), end(api.CodeUnavailable)))
		if _, err := loop(ctx, n.client(t), client.WatchRequest{}, 1000); err != nil {
			t.Error(err)
		}
		if got := len(n.requests()); got > 60 {
			t.Errorf("%d attempts in a minute", got)
		}
	})
}

// FuzzWatch_stream gives the client any stream: the loop ends with an error or
// goes on, and an event is never half of one.
func FuzzWatch_stream(f *testing.F) {
	f.Add(first("1") + renewal("2") + gap("3") + end(api.CodeClosed))
	f.Add("data: a\ndata: b\n\n:\n\nid\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := newNetwork(step{status: 200, mediaType: api.EventStreamMediaType, body: text}, problem(api.CodeDenied)).client(t)
		for ev, err := range c.Watch(t.Context(), client.WatchRequest{}) {
			switch {
			case err != nil && client.CodeOf(err) == "":
				t.Errorf("an error without a code: %v", err)
			case err == nil && ev.ID == "", err == nil && ev.Event != api.EventGap && (ev.LeaseID == "" || ev.Token == 0):
				t.Errorf("half an event: %+v", ev)
			}
		}
	})
}
