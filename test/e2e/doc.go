// Package e2e holds tests that need the whole program: real processes, real
// signals, real disks. They know the HTTP API and nothing of the inside.
package e2e
