package contract

import "time"

// MaxDuration is the longest duration any request may carry. It keeps
// arithmetic on instants far from overflow; namespaces set tighter bounds.
const MaxDuration = 10 * 365 * 24 * time.Hour

// Bounds on pages and bulks, in items.
const (
	DefaultPage    = 100
	MaxPage        = 1000
	MaxBulk        = 1000
	MaxHistoryRows = 1 << 16
)

// Retention says how long a store remembers. It is the namespace's and travels
// with the request, so that every gateway and every replica applies the same.
type Retention struct {
	// Idempotency is how long an answer can be replayed after it was given.
	Idempotency time.Duration
	// History is how long the events of a key are kept after they happened.
	History time.Duration
	// HistoryPerKey is how many events of one key are kept, the newest.
	HistoryPerKey int
}

// Limits are the namespace's quotas; zero means unlimited.
type Limits struct {
	LeasesPerOwner int // active leases of one owner in the namespace
	WaitersPerKey  int // callers that wait for one key; away ones do not count
}

// AcquireRequest asks for the key.
type AcquireRequest struct {
	Namespace string
	RequestID string
	Owner     string
	Instance  string
	Key       Key // normalised
	// TTL is the life asked for, from the grant on.
	TTL time.Duration
	// MaxLifetime is the cap on acquired-at → last possible expiry.
	MaxLifetime time.Duration
	// Wait is how long to wait for a held key; 0 answers at once.
	Wait        time.Duration
	ExecutionID string
	JobID       string
	TraceID     string
	Metadata    map[string]string
	Retention   Retention
	Limits      Limits
}

// RenewRequest asks for a longer life of a lease that the caller holds.
type RenewRequest struct {
	Namespace string
	RequestID string
	Owner     string
	Instance  string
	LeaseID   LeaseID
	Token     Token
	// TTL is the life asked for, from the renewal on; 0 asks for the TTL that
	// the lease was granted last.
	TTL       time.Duration
	TraceID   string
	Retention Retention
}

// RenewItem names one lease of a bulk renewal.
type RenewItem struct {
	LeaseID LeaseID
	Token   Token
}

// RenewBulkRequest renews many leases of one owner and instance by the TTL that
// each was granted last. Each item is a renewal of its own: it has its own
// outcome and is replayed under the same request id by itself.
type RenewBulkRequest struct {
	Namespace string
	RequestID string
	Owner     string
	Instance  string
	Leases    []RenewItem
	TraceID   string
	Retention Retention
}

// ReleaseRequest gives a lease back.
type ReleaseRequest struct {
	Namespace string
	RequestID string
	Owner     string
	Instance  string
	LeaseID   LeaseID
	Token     Token
	TraceID   string
	Retention Retention
}

// RevokeMode tells why a lease is ended from outside. Both modes end it the
// same way; the mode goes to the audit log.
type RevokeMode uint8

// The modes.
const (
	_ RevokeMode = iota
	// RevokeRight ends a lease whose holder may no longer hold it.
	RevokeRight
	// RevokeForceRelease ends a lease whose holder is believed dead.
	RevokeForceRelease
)

// RevokeRequest ends a lease on behalf of a privileged principal.
type RevokeRequest struct {
	Namespace string
	RequestID string
	Principal string
	LeaseID   LeaseID
	Mode      RevokeMode
	Reason    string
	TraceID   string
	Retention Retention
}

// CheckRequest asks whether a token is the current grant's.
type CheckRequest struct {
	Namespace string
	KeyID     KeyID
	Token     Token
}

// GetRequest names a lease.
type GetRequest struct {
	Namespace string
	LeaseID   LeaseID
}

// GetKeyRequest names a key.
type GetKeyRequest struct {
	Namespace string
	KeyID     KeyID
}

// ListRequest selects leases. An empty filter matches everything, another one
// matches literally: no character in it is a pattern.
type ListRequest struct {
	Namespace     string
	Owner         string
	Instance      string
	Tenant        string
	Program       string
	Target        Target // normalised; the zero Target matches everything
	Actor         string
	JobID         string
	State         State     // 0 means active
	ExpiresBefore time.Time // what ends at it is not before it; zero means any
	Limit         int       // 0 means DefaultPage; at most MaxPage
	Cursor        string
}

// HistoryRequest asks for a page of a key's events.
type HistoryRequest struct {
	Namespace string
	KeyID     KeyID
	Limit     int // 0 means DefaultPage; at most MaxPage
	Cursor    string
}

// WatchRequest selects events from now on, or from after a cursor.
type WatchRequest struct {
	Namespace string
	After     string // an Event.ID or a Stream.Cursor; empty means from now on
	Owner     string
	Instance  string
	LeaseID   LeaseID // zero means any
	KeyID     KeyID   // zero means any
	// Kinds are what may have happened. A gap is told whatever they are.
	Kinds EventKinds
}

// Selects reports whether a stream shows an event of the namespace.
func (r *WatchRequest) Selects(ev *Event) bool {
	return r.Kinds.Selects(ev.Kind) &&
		(r.Owner == "" || r.Owner == ev.Owner) &&
		(r.Instance == "" || r.Instance == ev.Instance) &&
		(r.LeaseID.IsZero() || r.LeaseID == ev.LeaseID) &&
		(r.KeyID.IsZero() || r.KeyID == ev.KeyID)
}

// RaiseFloorRequest makes every later token of the namespace higher than Above.
type RaiseFloorRequest struct {
	Namespace string
	Above     Token
}

// HealthRequest asks for the health of a namespace.
type HealthRequest struct {
	Namespace string
}

// Item returns the single renewal that item i stands for.
func (r *RenewBulkRequest) Item(i int) RenewRequest {
	return RenewRequest{
		Namespace: r.Namespace, RequestID: r.RequestID, Owner: r.Owner, Instance: r.Instance,
		LeaseID: r.Leases[i].LeaseID, Token: r.Leases[i].Token, TraceID: r.TraceID, Retention: r.Retention,
	}
}
