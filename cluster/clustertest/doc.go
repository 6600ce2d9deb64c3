// Package clustertest runs several nodes of package cluster in one process, with
// their real peer ports, over a network that tests can cut, slow and disturb.
//
// # What this package must not know
//
// What the nodes' FSMs do: a test brings its own, or uses Ledger.
//
// # Invariants
//
//   - What a test cuts stays silent, as on a network that loses packets: nobody is
//     told, connections stay and go on when the cut is healed, unless a deadline
//     came first.
//   - Everything that New starts has ended when the test ends.
package clustertest
