package gateway

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"leased/contract"
	"leased/gateway/api"
)

// block is what a stream sends at once: an event, or an id or a comment alone.
type block struct {
	id, event, data, retry, comment string
}

// events is an open stream.
type events struct {
	t     *testing.T
	reply *http.Response
	lines *bufio.Reader
	close context.CancelFunc
	// id is the last one that came, with an event or without.
	id string
}

// open opens a stream; headers are names and values in turn.
func (v *served) open(t *testing.T, client *http.Client, query string, headers ...string) *events {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+"/v1/namespaces/default/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	reply, err := client.Do(r) //nolint:bodyclose // the stream's close does
	if err != nil {
		t.Fatal(err)
	}
	e := &events{t: t, reply: reply, lines: bufio.NewReader(reply.Body), close: func() { cancel(); _ = reply.Body.Close() }}
	t.Cleanup(e.close)
	return e
}

// stream opens a stream that must begin, and takes the first block.
func (v *served) stream(t *testing.T, query string, headers ...string) *events {
	t.Helper()
	e := v.open(t, http.DefaultClient, query, headers...)
	e.begins()
	return e
}

// resume opens a stream after another one.
func (v *served) resume(e *events, query string) *events {
	e.t.Helper()
	e.close()
	return v.stream(e.t, query, api.HeaderLastEventID, e.id)
}

func (e *events) begins() {
	e.t.Helper()
	if e.reply.StatusCode != http.StatusOK || e.reply.Header.Get("Content-Type") != api.EventStreamMediaType {
		body, _ := io.ReadAll(e.reply.Body)
		e.t.Fatalf("got status %d, %s", e.reply.StatusCode, body)
	}
	if b := e.block(); b.id == "" || b.retry != "1000" || b.event != "" {
		e.t.Fatalf("the stream begins with %+v, want an id and how soon to come back", b)
	}
}

// read returns the next block.
func (e *events) read() (block, error) {
	var b block
	for {
		line, err := e.lines.ReadString('\n')
		if err != nil {
			return b, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			b.id, e.id = value, value
		case "event":
			b.event = value
		case "data":
			b.data += value
		case "retry":
			b.retry = value
		case "":
			if value == "" {
				return b, nil
			}
			b.comment = value
		default:
			return b, fmt.Errorf("the line %q is none of a stream", line)
		}
	}
}

func (e *events) block() block {
	e.t.Helper()
	b, err := e.read()
	if err != nil {
		e.t.Fatalf("read the stream: %v", err)
	}
	return b
}

// next returns the next event, which is one of a lease.
func (e *events) next() api.Event {
	e.t.Helper()
	for {
		b := e.block()
		if b.event == "" {
			continue
		}
		var ev api.Event
		if err := json.Unmarshal([]byte(b.data), &ev); err != nil || ev.LeaseID == "" || ev.Event != b.event || ev.ID != b.id {
			e.t.Fatalf("got %+v, %v; want the event of a lease", b, err)
		}
		return ev
	}
}

// named returns the next block with an event, and wants it to be of that name.
func (e *events) named(name string) block {
	e.t.Helper()
	for {
		b := e.block()
		if b.event == name {
			return b
		}
		if b.event != "" {
			e.t.Fatalf("got %+v, want %s", b, name)
		}
	}
}

// ended wants the stream to end with a problem, and returns it.
func (e *events) ended(code api.Code) api.Problem {
	e.t.Helper()
	var p api.Problem
	b := e.named(api.EventEnd)
	if err := json.Unmarshal([]byte(b.data), &p); err != nil || p.Code != code || p.RequestID == "" || p.Detail == "" {
		e.t.Errorf("the stream ends with %s, %v; want %s", b.data, err, code)
	}
	if rest, err := io.ReadAll(e.lines); err != nil || len(rest) > 0 {
		e.t.Errorf("after the end came %q, %v", rest, err)
	}
	return p
}

// held acquires the key of someKey at the store, without the network.
func (r *rig) held(t *testing.T, target string) *contract.Lease {
	t.Helper()
	key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: "name", ID: target}, Actor: "crawler"}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.store.Store.Acquire(context.Background(), &contract.AcquireRequest{
		Namespace: "default", RequestID: rand.Text(), Owner: "anonymous", Instance: "w-" + target[:min(len(target), 100)], Key: key,
		TTL: time.Minute, MaxLifetime: time.Hour, Retention: r.service.router.byName["default"].retention,
	})
	if err != nil || res.Outcome != contract.OutcomeAcquired {
		t.Fatalf("acquire: %v, %v", res.Outcome, err)
	}
	return res.Lease
}

// renewed renews a lease n times, under request ids that count from a number on.
func (r *rig) renewed(l *contract.Lease, from, n int) error {
	for i := from; i < from+n; i++ {
		res, err := r.store.Store.Renew(context.Background(), &contract.RenewRequest{
			Namespace: "default", RequestID: fmt.Sprint("renew-", i), Owner: l.Owner, Instance: l.Instance,
			LeaseID: l.ID, Token: l.Token, Retention: r.service.router.byName["default"].retention,
		})
		if err != nil || res.Outcome != contract.OutcomeRenewed {
			return fmt.Errorf("renew: %v, %w", res.Outcome, err)
		}
	}
	return nil
}

// openStreams returns how many streams the gateway counts as open.
func (r *rig) openStreams(t *testing.T) string {
	t.Helper()
	return strings.TrimPrefix(r.shown(t, `leased_event_streams{namespace="default"}`)[0], `leased_event_streams{namespace="default"} `)
}
