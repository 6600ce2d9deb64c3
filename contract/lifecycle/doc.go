// Package lifecycle is what every store needs to end well: calls are counted
// from their begin to their end, Close refuses later ones, tells waiters and
// streams, and waits for the rest within its bound. The rules are those of
// contract.Store's Close; here they are kept once, for all backends.
//
// # What this package must not know
//
// Any backend: what a store says when it hangs up is a function that the store
// hands to Close. What runs in a store's background is the store's own.
//
// # Invariants
//
//   - After Close or Die no call and no stream begins.
//   - The goodbye runs once, after the last call has ended or the bound has
//     passed.
//   - No lock is held while a call runs, and none during the goodbye.
package lifecycle
