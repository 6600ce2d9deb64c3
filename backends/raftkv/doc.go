// Package raftkv is the lease store for people who run no external KV: a
// deterministic state machine behind hashicorp/raft.
//
// Layers, from the log upwards:
//
//   - command.go: what a log entry says. Versioned; an unknown version or kind
//     stops the node, because going on would diverge.
//   - state.go, apply_*.go: the state and its transitions. Pure: no clock, no
//     chance, no goroutine, no I/O, and no map is ranged over.
//   - fsm.go, snapshot_*.go: the raft.FSM around the state. Snapshots are frozen
//     copies of copy-on-write trees: taking one is O(1), and Apply never waits
//     for Persist.
//   - engine.go, leaderclock.go, waiters.go, leaver.go: what runs beside the log on the node that
//     leads: the clock that stamps commands, the sweeper that turns due leases
//     into expiries, the calls that wait.
//   - store.go, reads.go, watch.go: contract.Store on top, where this node leads.
//   - forward*.go, peers.go, wire.go, era.go: contract.Store on any node of a
//     cluster, and the leader's side of it.
//   - backup.go, restore.go: the whole store in a file, and back.
//
// It imports contract and hashicorp/raft. It must not know the node that runs
// it: Proposer is all it sees of package cluster. See DESIGN.md for who is
// authoritative for what, and for what happens when each part fails.
//
// # Invariants
//
//   - Token = floor of the namespace + index of the log entry that granted.
//   - The state's clock is max(previous, stamp), and a stamp counts only in the
//     term in which it was made.
//   - A free key has no queue: whoever frees a key serves or drops its waiters
//     in the same entry.
//   - A stored answer never outlives the record of the lease it speaks of.
//   - Nodes of the trees are immutable: a change replaces the pointer. Readers
//     and snapshots keep what they saw.
package raftkv
