// Package supervise runs a command so that nothing of it outlives a deadline.
//
// # How it works
//
//	leased run ── socket ── supervisor ── command (a process group of its own)
//	                                          └── whatever it starts
//
// The supervisor is a process of its own in a process group of its own. It gets
// the deadline from its parent and moves it only when the parent says so: a parent
// that is killed, stopped or hangs cannot make the command run longer. At the first
// instant of the deadline every process gets SIGTERM, at the second SIGKILL.
//
// What belongs to the command is its process group and, on Linux, every process
// that descends from it: the supervisor is a subreaper, so that those whose parent
// ended become its children, whatever group or session they moved to. It ends when
// none is left.
//
// # Who dies, and what follows
//
//	the parent       the supervisor reads the end of the socket: SIGTERM to all,
//	                 SIGKILL after the grace and at the deadline at the latest
//	the supervisor   Linux kills the command (parent-death signal); what it had
//	                 started become children of the parent, which kills them
//	both at once     Linux kills the command; what it had started goes on
//
// # Invariants
//
//   - Signals that the parent's user ignores stay ignored in the command.
//   - The supervisor writes nothing: its streams are the command's.
//   - Where descendants are adopted, the group is signalled by its id only until the
//     command is reaped: from then on another could have the id. Others are found anew
//     each time. Elsewhere the group is signalled, and waited for, until it is empty.
package supervise
