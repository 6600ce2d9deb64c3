// Package api holds the JSON shapes of the HTTP API, version 1, and the one
// table of what each outcome and error looks like on the wire. The gateway
// writes with it and the SDK reads with it, so that the two cannot drift apart.
//
// # What this package must not know
//
// It imports contract, for the conversions, and a JSON library. No gin, no
// store, no metrics: whoever imports the SDK gets this package too.
//
// # Invariants
//
//   - Names are snake_case; durations are integer milliseconds in fields that
//     end in _ms; times are RFC 3339 in UTC with milliseconds, null when there
//     is none; tokens are JSON numbers below 2⁵³.
//   - A duration is rounded down on its way out, so that a reader never
//     believes in more time than there is.
//   - In a request null means absent. A field whose zero is a wrong value rather
//     than "use the default" is a pointer.
//   - openapi.yaml describes these shapes; the gateway's tests compare them.
package api
