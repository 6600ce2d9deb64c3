package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// script makes a history of one key, "k", whose leases have a TTL of one second.
// Instants are milliseconds. Request r is granted lease L-r.
type script struct {
	h History
	n int
}

func (s *script) op(from, to int64, o Op) *Op {
	s.n++
	o.ID, o.Key, o.CalledNS = fmt.Sprint("c-", s.n), "k", from*millisecond
	if to > 0 {
		o.ReturnedNS = to * millisecond
	}
	s.h.Ops = append(s.h.Ops, o)
	return &s.h.Ops[len(s.h.Ops)-1]
}

func (s *script) acquire(from, to int64, request string, a Answer) *Op {
	return s.op(from, to, Op{Verb: Acquire, Request: request, Instance: "i-" + request, Job: "j", TTLMS: 1000, Answer: a})
}

func acquired(request string, token uint64) Answer {
	return Answer{Outcome: Acquired, Lease: "L-" + request, Token: token, TTLMS: 1000, ExpiresInMS: 1000}
}

func replayed(a Answer, left int64) Answer { a.Replayed, a.ExpiresInMS = true, left; return a }

// grant is an acquire that was granted, and stands in the server's history.
func (s *script) grant(from, to int64, request string, token uint64) *Op {
	s.event("acquired", request, request, token)
	return s.acquire(from, to, request, acquired(request, token))
}

func (s *script) event(event, lease, request string, token uint64) {
	s.h.Events = append(s.h.Events, Event{Key: "k", Event: event, Lease: "L-" + lease, Token: token, Request: request})
}

// renew is of the lease L-a, whose token is 1.
func (s *script) renew(from, to int64, outcome string) {
	s.op(from, to, Op{Verb: Renew, Lease: "L-a", Token: 1, Request: "renew", Instance: "i-a",
		Answer: Answer{Outcome: outcome, Lease: "L-a", Token: 1, TTLMS: 1000, ExpiresInMS: 1000}})
}

func (s *script) release(from, to int64, lease string, token uint64, outcome string) *Op {
	if outcome == Released {
		s.event("released", lease, "release-"+lease, token)
	}
	return s.op(from, to, Op{Verb: Release, Lease: "L-" + lease, Token: token, Request: "release-" + lease, Instance: "i-" + lease,
		Answer: Answer{Outcome: outcome, Lease: "L-" + lease, Token: token}})
}

func (s *script) check(from, to int64, token uint64, outcome, lease string) {
	s.op(from, to, Op{Verb: Check, Token: token, Answer: Answer{Outcome: outcome, Lease: lease}})
}

func (s *script) conflict(from, to int64, request, holder string) {
	s.acquire(from, to, request, Answer{Outcome: Conflict, Holder: "i-" + holder})
}

// write is one that the register accepted, and was told so.
func (s *script) write(token uint64, instance string) {
	s.tryWrite(token, instance, Accepted)
	s.h.Writes = append(s.h.Writes, Written{Key: "k", Token: token, Instance: instance})
}

func (s *script) tryWrite(token uint64, instance, outcome string) {
	s.op(1, 2, Op{Verb: Write, Token: token, Instance: instance, Answer: Answer{Outcome: outcome}})
}

func promise() Promise {
	return Promise{Slack: 250 * time.Millisecond, FaultSlack: 500 * time.Millisecond}
}

func accepts(t *testing.T, cases map[string]func(*script)) {
	t.Helper()
	for name, tell := range cases {
		t.Run(name, func(t *testing.T) {
			var s script
			tell(&s)
			for _, v := range s.h.Check(promise()) {
				t.Error(v)
			}
		})
	}
}

// wrong is a history, and the rules that it breaks, in order.
type wrong struct {
	rules string
	tell  func(*script)
}

func refuses(t *testing.T, cases map[string]wrong) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var s script
			c.tell(&s)
			found := map[string]bool{}
			for _, v := range s.h.Check(promise()) {
				t.Log(v)
				found[v.Rule] = true
			}
			var rules []string
			for r := range found {
				rules = append(rules, r)
			}
			slices.Sort(rules)
			if got := strings.Join(rules, " "); got != c.rules {
				t.Errorf("the rules that are broken: %q, want %q", got, c.rules)
			}
		})
	}
}
