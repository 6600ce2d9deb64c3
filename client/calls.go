package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"leased/gateway/api"
)

// Answer is what acquire, renew, release, revoke and check answer when they did
// what was asked.
type Answer struct {
	// Outcome is "acquired", "renewed", "released", "revoked" or "current".
	Outcome string
	Lease   *api.Lease
	// Replayed tells that the answer was stored under the request id before: by an
	// earlier attempt, or by this one, where the server had to ask its store again.
	Replayed bool
	// RequestID is that of the call.
	RequestID string
	// SentAt is when the request that was answered was sent, on the monotonic
	// clock too. The lease ends no earlier than SentAt + Lease.ExpiresInMS; any
	// later moment is hope.
	SentAt time.Time
}

// AcquireRequest asks for a key.
type AcquireRequest struct {
	Namespace string
	RequestID string // empty: the client makes one
	Key       api.Key
	Instance  string
	// TTL and MaxLifetime: 0 takes the namespace's default. The API has whole
	// milliseconds; a fraction is rounded up.
	TTL         time.Duration
	MaxLifetime time.Duration
	// Wait is how long to wait for a held key. The call's deadline must leave
	// room for it; a deadline that does not ends the wait.
	Wait        time.Duration
	ExecutionID string
	JobID       string
	TraceID     string
	Metadata    map[string]string
}

// Acquire asks for the key. ErrConflict tells, in Problem.Holder and Queue, who
// has it. A connection that breaks during the wait is made again with the same
// request id, which keeps the place in the queue.
func (c *Client) Acquire(ctx context.Context, r AcquireRequest) (*Answer, error) {
	body := api.AcquireRequest{
		Key: r.Key, Instance: r.Instance, TTLMS: milliseconds(r.TTL), MaxLifetimeMS: milliseconds(r.MaxLifetime),
		ExecutionID: r.ExecutionID, JobID: r.JobID, TraceID: r.TraceID, Metadata: r.Metadata,
	}
	return c.change(ctx, r.RequestID, &call{
		path: c.in(r.Namespace) + "/leases", wait: r.Wait,
		body: func(waitLeft time.Duration) any {
			body.WaitMS = wholeMilliseconds(waitLeft)
			return &body
		},
	})
}

// RenewRequest asks for a longer life of a lease.
type RenewRequest struct {
	Namespace string
	RequestID string
	LeaseID   string
	Token     uint64
	Instance  string
	TTL       time.Duration // 0: as granted last
}

// Renew starts the lease's TTL again. ErrExpired, ErrReleased, ErrRevoked,
// ErrStaleToken, ErrNotOwner and ErrNotFound all mean that the lease is not
// held any more.
func (c *Client) Renew(ctx context.Context, r RenewRequest) (*Answer, error) {
	body := api.RenewRequest{Token: r.Token, Instance: r.Instance, TTLMS: milliseconds(r.TTL)}
	return c.change(ctx, r.RequestID, &call{path: c.lease(r.Namespace, r.LeaseID) + "/renew", body: always(&body)})
}

// RenewBulkRequest renews many leases of one instance at once, each by the TTL
// that it was granted last.
type RenewBulkRequest struct {
	Namespace string
	RequestID string
	Instance  string
	Leases    []api.RenewBulkLease // 1 to 1,000
}

// RenewBulkAnswer has one item for each lease, in order. An item can fail while
// the call succeeds.
type RenewBulkAnswer struct {
	Items     []api.RenewBulkItem
	RequestID string
	SentAt    time.Time // as Answer.SentAt
}

// RenewBulk renews the leases.
func (c *Client) RenewBulk(ctx context.Context, r RenewBulkRequest) (*RenewBulkAnswer, error) {
	return c.renewBulk(ctx, r, 0)
}

// renewBulk is RenewBulk with a bound of its own on each attempt; 0 is the
// client's.
func (c *Client) renewBulk(ctx context.Context, r RenewBulkRequest, attempt time.Duration) (*RenewBulkAnswer, error) {
	var got api.RenewBulkReply
	sent := &call{
		method: http.MethodPost, path: c.in(r.Namespace) + "/renew", changes: true,
		requestID: orNew(r.RequestID), attemptTimeout: attempt,
		read: into(&got, func(got *api.RenewBulkReply) bool {
			return len(got.Results) == len(r.Leases) && !slices.ContainsFunc(got.Results, func(i api.RenewBulkItem) bool {
				return (i.Error == nil) != complete(i.Lease)
			})
		}),
		body: always(&api.RenewBulkRequest{Instance: r.Instance, Leases: r.Leases}),
	}
	if err := c.do(ctx, sent); err != nil {
		return nil, err
	}
	return &RenewBulkAnswer{Items: got.Results, RequestID: sent.requestID, SentAt: sent.sentAt}, nil
}

// ReleaseRequest gives a lease back.
type ReleaseRequest struct {
	Namespace string
	RequestID string
	LeaseID   string
	Token     uint64
	Instance  string
}

// Release ends the lease. It can never end a newer one of the same key.
func (c *Client) Release(ctx context.Context, r ReleaseRequest) (*Answer, error) {
	return c.release(ctx, r, false)
}

// release is Release, tried until ctx ends if it is patient.
func (c *Client) release(ctx context.Context, r ReleaseRequest, patient bool) (*Answer, error) {
	body := api.ReleaseRequest{Token: r.Token, Instance: r.Instance}
	return c.change(ctx, r.RequestID, &call{path: c.lease(r.Namespace, r.LeaseID) + "/release", body: always(&body), patient: patient})
}

// RevokeRequest ends somebody's lease.
type RevokeRequest struct {
	Namespace string
	RequestID string
	LeaseID   string
	Reason    string // required
	Mode      string // api.ModeRevoke, api.ModeForceRelease; empty is the former
}

// Revoke ends the lease whoever holds it. The caller needs the right to.
func (c *Client) Revoke(ctx context.Context, r RevokeRequest) (*Answer, error) {
	body := api.RevokeRequest{Reason: r.Reason, Mode: r.Mode}
	return c.change(ctx, r.RequestID, &call{path: c.lease(r.Namespace, r.LeaseID) + "/revoke", body: always(&body)})
}

// Get returns a lease, active or ended.
func (c *Client) Get(ctx context.Context, namespace, leaseID string) (*api.Lease, error) {
	got, err := read(ctx, c, c.lease(namespace, leaseID), nil, func(got *api.GetReply) bool { return complete(got.Lease) })
	if err != nil {
		return nil, err
	}
	return got.Lease, nil
}

// ListRequest selects leases. An empty filter matches everything, another one
// matches literally.
type ListRequest struct {
	Namespace     string
	Owner         string
	Instance      string
	Tenant        string
	Program       string
	Target        api.Target
	Actor         string
	JobID         string
	State         string    // empty: active only
	ExpiresBefore time.Time // zero: any
	Limit         int       // of the page; 0: the server's default
	Cursor        string
}

// List returns one page of leases; an empty NextCursor ends the list.
func (c *Client) List(ctx context.Context, r ListRequest) (*api.ListReply, error) {
	q := url.Values{}
	for name, value := range map[string]string{
		"owner": r.Owner, "instance": r.Instance, "tenant": r.Tenant, "program": r.Program,
		"target_type": r.Target.Type, "target": r.Target.ID, "actor": r.Actor, "job_id": r.JobID,
		"state": r.State, "cursor": r.Cursor,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if !r.ExpiresBefore.IsZero() {
		q.Set("expires_before", r.ExpiresBefore.UTC().Format(time.RFC3339Nano))
	}
	setLimit(q, r.Limit)
	return read(ctx, c, c.in(r.Namespace)+"/leases", q, func(got *api.ListReply) bool {
		return !slices.ContainsFunc(got.Leases, func(l *api.Lease) bool { return !complete(l) })
	})
}

// GetKey returns who holds a key, who waits for it, and how its last lease
// ended.
func (c *Client) GetKey(ctx context.Context, namespace, keyID string) (*api.KeyReply, error) {
	return read[api.KeyReply](ctx, c, c.key(namespace, keyID), nil, nil)
}

// HistoryRequest asks for a page of a key's events.
type HistoryRequest struct {
	Namespace string
	KeyID     string
	Limit     int // 0: the server's default
	Cursor    string
}

// History returns one page of events, newest first; an empty NextCursor ends
// the history.
func (c *Client) History(ctx context.Context, r HistoryRequest) (*api.HistoryReply, error) {
	q := url.Values{}
	if r.Cursor != "" {
		q.Set("cursor", r.Cursor)
	}
	setLimit(q, r.Limit)
	return read[api.HistoryReply](ctx, c, c.key(r.Namespace, r.KeyID)+"/history", q, nil)
}

// CheckRequest asks whether a token is the current grant's. Key or KeyID names
// the key, not both.
type CheckRequest struct {
	Namespace string
	Key       *api.Key
	KeyID     string
	Token     uint64
}

// Check returns the active lease if the token is its token. That is not
// permission for a later write: the lease may end right after the answer.
func (c *Client) Check(ctx context.Context, r CheckRequest) (*Answer, error) {
	var got api.LeaseReply
	sent := &call{
		method: http.MethodPost, path: c.in(r.Namespace) + "/check", read: into(&got, hasLease),
		body: always(&api.CheckRequest{Key: r.Key, KeyID: r.KeyID, Token: r.Token}),
	}
	return c.answer(ctx, sent, &got)
}

// Resolve returns the canonical form and the id of a key. It grants nothing.
func (c *Client) Resolve(ctx context.Context, namespace string, key api.Key) (*api.ResolveReply, error) {
	var got api.ResolveReply
	err := c.do(ctx, &call{
		method: http.MethodPost, path: c.in(namespace) + "/resolve",
		read: into(&got, func(got *api.ResolveReply) bool { return got.KeyID != "" }),
		body: always(&api.ResolveRequest{Key: key}),
	})
	if err != nil {
		return nil, err
	}
	return &got, nil
}

// change makes a call that changes one lease.
func (c *Client) change(ctx context.Context, requestID string, sent *call) (*Answer, error) {
	var got api.LeaseReply
	sent.method, sent.changes, sent.requestID, sent.read = http.MethodPost, true, orNew(requestID), into(&got, hasLease)
	return c.answer(ctx, sent, &got)
}

func (c *Client) answer(ctx context.Context, sent *call, got *api.LeaseReply) (*Answer, error) {
	if err := c.do(ctx, sent); err != nil {
		return nil, err
	}
	return &Answer{
		Outcome: got.Outcome, Lease: got.Lease, Replayed: got.Replayed,
		RequestID: sent.requestID, SentAt: sent.sentAt,
	}, nil
}

func (c *Client) lease(namespace, id string) string {
	return c.in(namespace) + "/leases/" + url.PathEscape(id)
}

func (c *Client) key(namespace, id string) string {
	return c.in(namespace) + "/keys/" + url.PathEscape(id)
}

// always is the body of a call that sends the same with each attempt.
func always(body any) func(time.Duration) any { return func(time.Duration) any { return body } }

func setLimit(q url.Values, limit int) {
	if limit != 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
}

// milliseconds returns a duration as the API takes it; 0 is absent.
func milliseconds(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	ms := wholeMilliseconds(d)
	return &ms
}

// wholeMilliseconds rounds away from zero: a TTL of 100µs must not become "the
// default", nor a negative one valid.
func wholeMilliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	switch rest := d % time.Millisecond; {
	case rest > 0:
		ms++
	case rest < 0:
		ms--
	}
	return ms
}
