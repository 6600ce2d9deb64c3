// Package cluster runs one node of a raft cluster for any raft.FSM: its files,
// its identity, its transport, its snapshots, and the three questions an FSM's
// owner has: was this command applied (Propose), may I answer from my state now
// (Confirm), in which term do I lead (Leadership).
//
// Several nodes form a cluster over one peer port, which carries raft, this
// package's own questions and, with Transport and Serve, the calls of its user.
// DESIGN.md says who is authoritative for what,
// how each failure is handled, in which order a node stops, and which traps of
// the raft library the code steps around.
//
// # What this package must not know
//
// What a command means: it carries bytes to the FSM and answers back, and never
// imports raftkv, which in turn proposes through an interface of its own. Nor
// namespaces, HTTP, users or clocks.
//
// # Invariants
//
//   - A command whose Propose returned nil was applied and is on the disks of a
//     majority: kill -9 does not lose it.
//   - An error of Propose says what is known: ErrNotSubmitted and ErrClosed mean
//     that raft never saw the command, ErrNoAnswer and raft's errors outside the
//     caller's allow-list mean that it may still be applied.
//   - A term is reported by Leadership only after the entries of all earlier
//     terms were applied to the FSM.
//   - An entry that the log cannot give back as it was stored is never applied,
//     see DESIGN.md, Failures.
//   - Nothing but this package's process touches the node's folder: a lock held
//     for the life of the node guards everything in it.
//   - A folder is one node of one cluster for ever: another node id is refused,
//     and so is a folder whose log vanished, because a new log would hand out
//     indices that are already in use as fencing tokens.
//   - Connections between nodes belong to one cluster and say whom they mean; a
//     vote or an entry is sent or taken only once the identity on disk says that
//     the node is a member.
//   - Members that were configured form a cluster only when all of them answer and
//     are empty. A folder that was lost comes back as another server of raft, never
//     as the voter that it was.
//   - Every goroutine that the package starts has ended when Close returns nil.
package cluster
