// Package cluster tests three leased processes that are one cluster, killed,
// paused and restarted under load, over HTTP only. LEASED_CHAOS makes the tests
// long, as make chaos does.
package cluster
