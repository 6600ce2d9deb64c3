// Package holding watches, from outside, what holders of leases do while their
// servers, their network and they themselves are cut off, killed and paused: real
// processes that hold a lease with the SDK or under `leased run`, and an observer
// that sees each of their side effects. LEASED_CHAOS makes it two hundred runs.
package holding
