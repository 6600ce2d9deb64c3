// Package valkey is the lease store on a Valkey server, standalone, watched by
// Sentinel, or a cluster. Every verb is one Lua script, so that a transition,
// its event, its index entries and its replayable answer are one atomic step of
// the server, decided by the server's clock.
//
//	Store ──▶ link ──EVALSHA──▶ valkey
//	  │         └── (re)connects, watches policy, role and run id
//	  ├── rooms: one a namespace: heartbeat, sweeper, waiting calls, wake-ups
//	  └── streams: read the namespace's stream, and wait for its feed, which waits
//	      with one XREAD for all of them
//
// DESIGN.md has the layout of the keys, the queue, and what happens when things
// fail.
//
// # What this package must not know
//
// It imports package contract and the vendor's client. It knows no other
// backend, no gateway and no HTTP.
//
// # Invariants
//
//   - All keys of a namespace are in one slot; no text of a user is part of what
//     chooses it.
//   - A script checks everything before it writes anything: the server rolls
//     nothing back.
//   - No decision rests on memory of this process, on a replica, on a
//     notification that came or did not come, or on a client's clock.
//   - What was certainly not applied is an allow-list, see classify.
package valkey
