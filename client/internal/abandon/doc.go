// Package abandon lets the packages of the SDK end a session without releasing its
// lease: for a holder that could not write down how its work ended. Whoever reads
// what it wrote before goes on with the lease, or finds it ended with its TTL, and
// must not find it released.
//
// It knows neither sessions nor leases, and holds nothing.
package abandon
