// Command leased is the lease gateway and its command-line client.
//
//	leased serve      runs a node: HTTP gateway, store, configuration
//	leased acquire …  and the other commands call a running one
//
// # What this package is
//
// The only place that knows every package: it reads the configuration, opens
// backends by name (backend.go), gives them to the gateway, and closes all of it
// in order (app.go). A new backend is one folder and one line in backend.go.
// Nothing else belongs here; a command is a file, and what a command does beyond
// reading flags and printing lives in package client or gateway.
//
// # Invariants
//
//   - Only main ends the process, and only with one of the exit codes that
//     exit.go lists; scripts tell a held key from a lost lease by them.
//   - Everything a command touches (arguments, environment, streams, signals)
//     comes in through env, so that a test runs a whole command in its own
//     process.
//   - A setting is used or refused, never ignored. Settings of features that
//     this release does not have are known by name, for that reason.
//   - Results go to standard output, everything else to standard error.
package main
