// Package memstore is a lease store in memory. It is the reference that the
// other stores are compared with, and what unit tests run on; a server cannot
// be configured to use it.
//
// It has two halves. Model is the law as a pure function: Step takes an instant
// and an operation and returns the answer together with everything that
// happened because of it. Backend and Store put it behind contract.Store: one
// lock, parked calls, streams, and a clock that moves only when Advance says so.
// Several Stores open on one Backend stand for several gateways on one store.
//
// The simplest data structure wins everywhere: maps, slices and full scans.
// Nothing here is meant to be fast.
//
// # What this package must not know
//
// No other store, no gateway, no file and no wall clock. Model starts no
// goroutine and draws no random number: the instant and the nonce of a new lease
// id are inputs, so that one sequence of operations always gives the same
// answers. A wait is the one thing measured in real time, because it is the
// caller who waits.
//
// # Invariants of a Model, after every step
//
//   - A key has at most one active lease, and it is the newest one.
//   - No active lease is past its expiry.
//   - Only the key of an active lease has a queue: whoever could be served was.
//   - Tokens of a namespace rise in the order in which they were granted.
//   - Nothing leaves a terminal state.
//   - A refusal leaves the Model as it was.
package memstore
