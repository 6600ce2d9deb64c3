// Package client is the Go SDK of the leased HTTP API.
//
// It makes typed calls: one method for each route, with the
// wire types of gateway/api in its answers and *Error in its refusals.
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
//	rate_limited, no connection        the next server if there are several
//	outcome_unknown, cut connection,   may have been applied: tries again until
//	an answer that makes no sense      the context ends, to find out
//	anything else                      returns it
//
// Pauses grow with jitter; a Retry-After is kept to. When the context ends first,
// the error says what is known of all attempts together: once one of them may
// have been applied, an "unavailable" that follows does not take that back, and
// the call ends with outcome_unknown.
//
// # What this package must not know
//
// No server framework, no store, no vendor client: it must cost its users no
// more than HTTP and JSON. It writes no log and never ends the process.
package client
