package prove

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"leased/gateway/api"
	"leased/test/history"
)

// patience is how long a client waits for an answer, the wait of an acquire excluded.
const patience = 1500 * time.Millisecond

// caller makes calls, each once, and records them. The SDK would repeat them by
// itself; here every attempt is an operation of its own.
type caller struct {
	name    string
	http    *http.Client
	servers []string
	calls   atomic.Int64

	mu       sync.Mutex // of the recorder
	recorder *history.Recorder
}

func (c *caller) record(o *history.Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.recorder.Record(o); err != nil {
		panic(err) // nothing that follows would be known
	}
}

// begin completes and records a call that is made now.
func (c *caller) begin(o *history.Op) {
	o.Client = c.name
	o.ID = fmt.Sprint(c.name, "-", c.calls.Add(1))
	o.Answer, o.ReturnedNS = history.Answer{}, 0
	o.CalledNS = history.Now()
	c.record(o)
}

func (c *caller) end(o *history.Op, a history.Answer) {
	o.ReturnedNS, o.Answer = history.Now(), a
	c.record(o)
}

func key(name string) api.Key {
	return api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: name}, Actor: "prover"}
}

// send makes the call that o describes at one of the servers, and returns it with its
// answer.
func (c *caller) send(o history.Op, server int) history.Op {
	const leases = "/v1/namespaces/default/leases"
	o.Server = c.servers[server%len(c.servers)]
	c.begin(&o)
	var (
		path string
		body any
	)
	switch o.Verb {
	case history.Acquire:
		path, body = leases, &api.AcquireRequest{Key: key(o.Key), Instance: o.Instance, TTLMS: &o.TTLMS, WaitMS: o.WaitMS, JobID: o.Job}
	case history.Renew:
		path, body = leases+"/"+o.Lease+"/renew", &api.RenewRequest{Token: o.Token, Instance: o.Instance}
	case history.Release:
		path, body = leases+"/"+o.Lease+"/release", &api.ReleaseRequest{Token: o.Token, Instance: o.Instance}
	case history.Check:
		k := key(o.Key)
		path, body = "/v1/namespaces/default/check", &api.CheckRequest{Key: &k, Token: o.Token}
	case history.Revoke:
		path, body = leases+"/"+o.Lease+"/revoke", &api.RevokeRequest{Reason: o.Reason, Mode: o.Mode}
	default:
		panic("there is no call for " + o.Verb)
	}
	c.end(&o, c.post(o.Server+path, o.Request, body, time.Duration(o.WaitMS)*time.Millisecond))
	return o
}

// post makes one request. A request that has a connection may have done anything.
func (c *caller) post(url, request string, body any, wait time.Duration) history.Answer {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	var connected atomic.Bool
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	ctx, cancel := context.WithTimeout(ctx, patience+wait)
	defer cancel()
	bound := patience + wait - 300*time.Millisecond
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s?timeout=%dms", url, bound.Milliseconds()), bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	req.GetBody = nil // net/http would repeat a request with an idempotency key, unseen
	req.Header.Set("Content-Type", api.MediaType)
	if request != "" {
		req.Header.Set(api.HeaderIdempotencyKey, request)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return failed(connected.Load(), err)
	}
	defer res.Body.Close()
	text, err = io.ReadAll(res.Body)
	if err != nil {
		return failed(true, err)
	}
	return answer(res.StatusCode, text)
}

func failed(connected bool, err error) history.Answer {
	if connected {
		return history.Answer{Outcome: history.Lost, Detail: err.Error()}
	}
	return history.Answer{Outcome: history.NotSent, Detail: err.Error()}
}

// answer reads what a server answered.
func answer(status int, text []byte) history.Answer {
	if status/100 == 2 {
		var got api.LeaseReply
		if err := json.Unmarshal(text, &got); err != nil || got.Lease == nil {
			return history.Answer{Outcome: history.Internal, Detail: fmt.Sprintf("%v in %s", err, text)}
		}
		a := leaseAnswer(got.Lease)
		a.Outcome, a.Replayed = got.Outcome, got.Replayed
		return a
	}
	var p api.Problem
	if err := json.Unmarshal(text, &p); err != nil || p.Code == "" {
		// Half of a request, when what swallowed the other half lets it pass.
		return history.Answer{Outcome: history.Lost, Detail: fmt.Sprintf("status %d: %v in %s", status, err, text)}
	}
	a := leaseAnswer(p.Lease)
	a.Outcome, a.Replayed, a.Detail = string(p.Code), p.Replayed, p.Detail
	switch p.Code {
	case api.CodeExpired, api.CodeReleased, api.CodeRevoked:
		a.Outcome = "ended_" + a.Outcome
	case api.CodeConflict:
		if p.Holder != nil {
			a.Holder = p.Holder.Instance
		}
	}
	return a
}

func leaseAnswer(l *api.Lease) history.Answer {
	if l == nil {
		return history.Answer{}
	}
	return history.Answer{Lease: l.LeaseID, Token: l.Token, TTLMS: l.TTLMS, ExpiresInMS: l.ExpiresInMS}
}
