// Package gateway serves the HTTP API over stores that it knows as
// contract.Store and no closer.
//
// # Parts
//
//	net/http ─▶ Server ─▶ routes ─▶ bind ─▶ Service ─▶ router ─▶ contract.Store
//	                        │                  │
//	                        ◀── respond        ├─▶ Authenticator
//	                            middleware     ├─▶ metrics
//	                                           └─▶ AuditSink
//
// Service does once what every backend needs: the namespace's policy,
// normalisation, deadlines, authorisation, metrics, audit. It knows no HTTP.
// gin stays in routes*, bind*, middleware*, respond* and server*; the rest does
// not import it.
//
// # What this package must not know
//
// Which backends there are, how they are reached, how they decide. It decides
// nothing about a lease from memory: every answer about one is the store's.
//
// # Invariants
//
//   - The owner of a lease is the authenticated principal. No field of a request
//     can name another.
//   - A request outside the namespace's policy is refused and told the bound,
//     never clamped. What is absent takes the namespace's default.
//   - A body is read strictly and to its end. A lenient decoder would ignore what
//     its sender meant, and an unread rest hides that the client went away.
//   - Every reply has an X-Request-Id, every refusal is a problem of package api,
//     and nothing in it shows a cause, an address or a credential.
//   - Every wait is bounded: a call's by its deadline, a body's and a reply's by
//     deadlines on the connection, a look at a store's health by a timeout. There
//     is no timeout on a whole connection, which would cut the waits.
//   - Metric labels come from closed sets. A caller's text is never a label.
//   - A stuck audit sink loses events and counts them; it never delays a request.
//   - Draining ends the waits at once with the answer closed. Whoever was granted
//     in that moment is told of the grant: nobody is granted silently.
package gateway
