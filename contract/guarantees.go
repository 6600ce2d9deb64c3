package contract

import "time"

// Guarantees says what a backend promises, in words that do not flatter it.
// They are data, so that a gateway can show them and a test can hold them.
type Guarantees struct {
	// Durability: what an acknowledged change survives.
	ProcessCrash string
	MachineCrash string
	FailOver     string
	Partition    string
	ClockStep    string
	Restore      string

	// Granularity is the step in which TTLs are granted: a request is rounded
	// up to a multiple of it.
	Granularity time.Duration
	// MinTTL is the shortest TTL the backend can grant; a shorter request is
	// granted this much.
	MinTTL time.Duration
	// Slack is how much later than its TTL a lease may end while the backend is
	// healthy. A lease never ends earlier.
	Slack time.Duration
	// Fairness says in which order waiters are served.
	Fairness string
	// QuotaExact tells that namespace quotas cannot be exceeded by acquires
	// that race each other.
	QuotaExact bool
}

// Health is what a store can say of itself now.
type Health struct {
	// Ready tells that an operation on the namespace sent now would be served:
	// the real path was tried, not only a connection.
	Ready bool
	// Detail says why not, without addresses or credentials.
	Detail string
	// Leader names the node that decides, where the backend has such a thing.
	Leader string
	// Lag is how far behind the deciding node the answering one is; zero where
	// the backend has no such thing.
	Lag time.Duration
	// ActiveLeases and Waiters count the namespace's.
	ActiveLeases int64
	Waiters      int64
	Guarantees   Guarantees
}
