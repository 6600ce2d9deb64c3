// Package contract says what a lease store is: the key, the record, the
// requests and outcomes, the errors, the events, and the Store interface that
// every backend implements. The comments on Store are the law; package
// contracttest holds a rule for each of them, and a backend that passes the
// rules may serve a namespace.
//
// # Words
//
//   - key: the canonical identity of mutually exclusive work.
//   - lease: a time-bounded grant of one key to one owner and instance.
//   - token: the fencing token, a positive integer that strictly rises with
//     every new grant of a key, for ever.
//   - request id: names one logical attempt; repeating it replays the answer.
//   - namespace: a routing and policy unit. One store may serve several.
//
// # States of a key
//
//	free ──acquire──▶ active ──release──▶ released
//	                    │ ├──expiry────▶ expired
//	                    │ └──revoke────▶ revoked
//	                    └─renew─▶ active (same token, same lease id)
//
// Nothing leaves a terminal state: a new grant has a new lease id and a higher
// token.
//
// # What this package must not know
//
// It imports the standard library, golang.org/x/text and golang.org/x/net, and
// nothing of this module: no backend, no HTTP, no metrics. It holds no state
// and starts no goroutine.
//
// # Invariants
//
//   - Losing a race is an outcome, not an error. An error says what is known of
//     the write, see Code.
//   - The zero Outcome, State, Code and EventKind are invalid, so that a
//     forgotten assignment fails a test instead of reading as success.
//   - The backend's clock decides; nothing here takes a client's time.
package contract
