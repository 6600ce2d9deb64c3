package api

import "leased/contract"

// The states of a namespace.
const (
	StateServing     = "serving"
	StateDraining    = "draining"
	StateUnavailable = "unavailable"
)

// NamespacesReply answers GET /v1/namespaces, in the order of their names.
type NamespacesReply struct {
	Namespaces []Namespace `json:"namespaces"`
}

// Namespace says what a namespace is, promises and does.
type Namespace struct {
	Namespace string `json:"namespace"`
	Backend   string `json:"backend"` // as configured
	Active    string `json:"active"`  // the backend that serves now
	// Generation counts the moves from one backend to another, from 1.
	Generation int        `json:"generation"`
	State      string     `json:"state"`
	Limits     Limits     `json:"limits"`
	Guarantees Guarantees `json:"guarantees"`
	Health     Health     `json:"health"`
}

// Limits are the bounds that the namespace's policy sets.
type Limits struct {
	TTLMS         Bounds      `json:"ttl_ms"`
	MaxLifetimeMS int64       `json:"max_lifetime_ms"`
	MaxWaitMS     int64       `json:"max_wait_ms"`
	History       History     `json:"history"`
	Idempotency   Idempotency `json:"idempotency"`
	Quotas        Quotas      `json:"quotas"`
}

// Bounds are those of a duration, in milliseconds.
type Bounds struct {
	Min     int64 `json:"min"`
	Default int64 `json:"default"`
	Max     int64 `json:"max"`
}

// History says how much of a key's history is kept.
type History struct {
	KeepMS int64 `json:"keep_ms"`
	PerKey int   `json:"per_key"`
}

// Idempotency says how long an answer can be replayed.
type Idempotency struct {
	KeepMS int64 `json:"keep_ms"`
}

// Quotas are the namespace's; zero means unlimited.
type Quotas struct {
	LeasesPerOwner int `json:"leases_per_owner"`
	WaitersPerKey  int `json:"waiters_per_key"`
}

// Guarantees says what the backend promises.
type Guarantees struct {
	ProcessCrash  string `json:"process_crash"`
	MachineCrash  string `json:"machine_crash"`
	FailOver      string `json:"fail_over"`
	Partition     string `json:"partition"`
	ClockStep     string `json:"clock_step"`
	Restore       string `json:"restore"`
	GranularityMS int64  `json:"granularity_ms"`
	MinTTLMS      int64  `json:"min_ttl_ms"`
	SlackMS       int64  `json:"slack_ms"`
	Fairness      string `json:"fairness"`
	QuotaExact    bool   `json:"quota_exact"`
}

// NewGuarantees returns g for the wire. Durations here are promises, so they are
// rounded up: a slack of less than a millisecond must not read as none.
func NewGuarantees(g *contract.Guarantees) Guarantees {
	return Guarantees{
		ProcessCrash: g.ProcessCrash, MachineCrash: g.MachineCrash, FailOver: g.FailOver,
		Partition: g.Partition, ClockStep: g.ClockStep, Restore: g.Restore,
		GranularityMS: millisecondsUp(g.Granularity), MinTTLMS: millisecondsUp(g.MinTTL),
		SlackMS: millisecondsUp(g.Slack), Fairness: g.Fairness, QuotaExact: g.QuotaExact,
	}
}

// Health is what the namespace's store says of itself now.
type Health struct {
	Ready        bool   `json:"ready"`
	Detail       string `json:"detail"`
	Leader       string `json:"leader"`
	LagMS        int64  `json:"lag_ms"`
	ActiveLeases int64  `json:"active_leases"`
	Waiters      int64  `json:"waiters"`
}

// NewHealth returns h for the wire.
func NewHealth(h *contract.Health) Health {
	return Health{
		Ready: h.Ready, Detail: h.Detail, Leader: h.Leader, LagMS: millisecondsUp(h.Lag),
		ActiveLeases: h.ActiveLeases, Waiters: h.Waiters,
	}
}

// HealthzReply answers /healthz: the process is alive, and no more than that.
type HealthzReply struct {
	Status  string `json:"status"` // "ok"
	Version string `json:"version"`
}

// Readiness answers /readyz when every namespace can be served.
type Readiness struct {
	Ready      bool             `json:"ready"`
	Namespaces []ReadyNamespace `json:"namespaces"`
	// AuditDropped counts audit events that were lost since the start because
	// the sink did not keep up.
	AuditDropped uint64 `json:"audit_dropped"`
}

// ReadyNamespace tells whether one namespace can be served, and why not.
type ReadyNamespace struct {
	Namespace string `json:"namespace"`
	Ready     bool   `json:"ready"`
	Detail    string `json:"detail"`
}

// NotReady answers /readyz when a namespace cannot be served or the gateway is
// draining: a problem with the readiness beside it.
type NotReady struct {
	Problem
	Readiness
}
