// Package etcd is the lease store on an etcd that exists already.
//
// Each call is a transaction that compares exactly what it was decided on and
// writes the lease, its event, its answer and its index in one step. Etcd leases
// decide when a lease ends; one belongs to one holder, and only the holder's
// renewals keep it alive. Tokens are floor + revision of the grant. DESIGN.md has
// the keys, who is authoritative for what, and what happens when each part fails.
//
//   - names.go, record.go, queue.go: what lies in etcd.
//   - pool.go, follow.go, errors.go: the members, watches, and what errors mean.
//   - hope.go, commit.go: calls that try again, and transactions that go together.
//   - state.go, hints.go: what is known of a key, read or guessed.
//   - acquire.go, grant.go, renew.go, end.go, handover.go: the verbs.
//   - wait.go, line*.go, follow_queues.go, presence.go: waiting.
//   - reads.go, history.go, list*.go, watch.go, health.go: the rest.
//   - sweep.go, bucket.go, spare.go, ender.go, trim.go: what runs beside calls.
//
// It imports contract and etcd's client. It must not know the gateway, nor any
// other store.
//
// # Invariants
//
//   - A guess decides nothing: a transaction compares all of it.
//   - A free key with somebody present in its queue goes to the first of them.
//   - An etcd lease belongs to one holder's lease, or is spare, or is being ended.
//   - Whatever is written under a key is removed by the lease's end, by its place's
//     turn, or by the etcd lease of a bucket.
package etcd
