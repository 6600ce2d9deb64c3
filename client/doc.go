// Package client is the Go SDK of the leased HTTP API. It holds leases for as long
// as work takes, and makes typed calls.
//
// # Holding a lease
//
// Client.Hold acquires a key and renews the lease until Session.Release. The work
// gets the session's context, which ends before another could have the key:
//
//	s, err := c.Hold(ctx, client.HoldRequest{AcquireRequest: client.AcquireRequest{
//		Key:      api.Key{Tenant: "acme", Target: api.Target{Type: "domain", ID: "example.com"}, Actor: "crawler"},
//		Instance: "worker-7",
//	}})
//	if err != nil { … }
//	defer s.Release()
//	return work(s.Context(), s.Token())
//
// A session is in one of three states, and ends in the third or with its release:
//
//	        renewal failed             the trust ends, or the server says
//	     ┌──────────────────▶          expired, revoked, …
//	held │                    in doubt ─────────────────▶ lost
//	     ◀──────────────────┘                              ▲
//	     │  renewal succeeded                              │
//	     └─────────────────────────────────────────────────┘
//
// The trust in a lease ends at "request sent + granted life − margin", where the
// request is that of the grant or of the latest renewal that succeeded, and the
// time that has passed is the larger of what the monotonic and the wall clock say:
// the one stands still while a machine is suspended, the other can be set back.
// A renewal is sent when a third of the life is over, takes at most another third
// and at least two attempts, and is repeated until the trust ends: one that fails
// ends nothing. Only expired, released, revoked, stale_token, not_owner and
// not_found about the lease itself end the work at once. The server tells of that
// in its stream of events too, which a session follows where it may, and needs
// not. The leases of a namespace and instance are renewed together, a thousand with
// one request, but those of a short TTL not with those of a long one.
//
// A margin cannot help work that ignores its context, or a process that does not
// run when the trust ends. The fencing token does: see Session.Token.
//
// # Calls
//
// There is one method for each route, with the wire types of gateway/api in its
// answers and *Error in its refusals.
//
//	c, err := client.New(client.Options{Servers: []string{"http://127.0.0.1:8470"}})
//	…
//	got, err := c.Acquire(ctx, client.AcquireRequest{
//		Key:      api.Key{Tenant: "acme", Target: api.Target{Type: "domain", ID: "example.com"}, Actor: "crawler"},
//		Instance: "worker-7",
//		TTL:      30 * time.Second,
//	})
//	if errors.Is(err, client.ErrConflict) { … }
//
// # Who is authoritative
//
// The server. Nothing is answered from memory, and the caller's clock decides
// nothing but how long the caller may trust its own lease: Answer.SentAt is taken
// before the request went out, because the lease may have begun at any moment
// after that.
//
// # Failure handling
//
// Every call that changes something carries a request id and is repeated with
// the same id, so that repeating is harmless:
//
//	answer                             what the client does
//	unavailable, closed, timeout,      certainly not applied: tries again, on
//	rate_limited, no connection, a     the next server if there are several
//	page that is not the gateway's
//	outcome_unknown, cut connection,   may have been applied: tries again until
//	an answer that makes no sense      the context ends, to find out
//	anything else                      returns it
//
// Pauses grow with jitter; a Retry-After is kept to. When the context ends first,
// the error says what is known of all attempts together: once one of them may
// have been applied, an "unavailable" that follows does not take that back, and
// the call ends with outcome_unknown.
//
// # Events
//
// Watch is a loop over what happens to leases, as it happens. It resumes by
// itself where it was cut off:
//
//	for ev, err := range c.Watch(ctx, client.WatchRequest{Instance: "worker-7"}) {
//		…
//	}
//
// # What this package must not know
//
// No server framework, no store, no vendor client: it must cost its users no
// more than HTTP and JSON. It writes no log and never ends the process.
package client
