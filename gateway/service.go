package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"leased/contract"
	"leased/gateway/api"
)

// Service does once what every backend needs: limits, deadlines, authorisation,
// metrics, audit. It knows no HTTP. Its methods answer a contract.Result, or an
// error from which problemOf makes what the caller may see.
type Service struct {
	router     *router
	auth       Authenticator
	audit      AuditSink // nil when there is none
	cluster    Cluster   // nil when there is none
	drainer    *drainer
	logger     *slog.Logger
	maxTimeout time.Duration
	streams    streamTimes
	maxRestore int64
	// bodyTimeout bounds the reading of a body, whatever the call's own deadline.
	bodyTimeout time.Duration
	now         func() time.Time
	started     time.Time
}

// Call is one operation on one namespace, on behalf of one principal.
type Call struct {
	Principal Principal
	// RequestID names the attempt; the caller of the API chose it or was told it.
	RequestID string
	// TraceID is the one that came with the request, if any.
	TraceID string
	// Timeout bounds the call; 0 is the default.
	Timeout time.Duration

	op    operation
	ns    *namespace
	start time.Time
}

// begin opens a call. It fails when there is no such namespace and when the
// gateway is draining. The call can be refused with it either way.
func (s *Service) begin(c *Call, namespace string) error {
	ns, ok := s.router.byName[namespace]
	if !ok {
		c.ns = s.router.unknown
		return errUnknownNamespace()
	}
	c.ns = ns
	if s.drainer.isDraining() {
		return errClosed()
	}
	return nil
}

func errUnknownNamespace() error {
	return refuse(api.CodeUnknownNamespace, "no namespace has this name; GET /v1/namespaces lists them")
}

func errClosed() error {
	return refuse(api.CodeClosed, "the gateway is shutting down; another one can serve this, or this one once it is back")
}

// authorize returns an error unless the principal may do a now.
func (s *Service) authorize(c *Call, a Action) error {
	if s.auth.Authorize(c.Principal, a) {
		return nil
	}
	return refuse(api.CodeDenied, fmt.Sprintf("needs the right %q on this in namespace %q", a.Verb, c.ns.Name))
}

// authorizeID is authorize for a request that names a key or a lease only by
// id. For a scoped principal it looks the key up; found is false when nothing is
// known of it, and then there is nothing to be protected or done.
func (s *Service) authorizeID(ctx context.Context, c *Call, verb Verb, id contract.KeyID) (found bool, err error) {
	if !c.Principal.Scoped {
		return true, s.authorize(c, Action{Verb: verb, Namespace: c.ns.Name})
	}
	res, err := c.ns.Store.GetKey(ctx, &contract.GetKeyRequest{Namespace: c.ns.Name, KeyID: id})
	if err != nil || res.Outcome != contract.OutcomeFound {
		return false, err
	}
	return true, s.authorize(c, onKey(verb, c.ns.Name, &res.Key))
}

// bound returns ctx with the call's deadline. A timeout that the caller gave is
// the whole of it, the wait included; without one the wait comes on top, so that
// a long wait is not cut by a default.
func (s *Service) bound(ctx context.Context, c *Call, wait time.Duration) (context.Context, context.CancelFunc) {
	d := contract.DefaultTimeout + wait
	if c.Timeout > 0 {
		d = min(c.Timeout, s.maxTimeout)
	}
	return context.WithTimeout(ctx, d)
}

// finish counts a call and audits it. Every call ends here, once.
func (s *Service) finish(c *Call, sub *subject, res *contract.Result, err error) {
	took := s.now().Sub(c.start)
	v := verdictOf(res.Outcome, err)
	c.ns.metrics.count(c.op, v, res.Replayed, took)
	s.record(c, c.op, v, sub, res, took)
	if err != nil {
		s.logFault(c, v, err)
	}
}

func (s *Service) record(c *Call, op operation, v verdict, sub *subject, res *contract.Result, took time.Duration) {
	if s.audit == nil || !audited(op, v) {
		return
	}
	e := c.event(op, v, sub, res, took)
	e.Time = s.now()
	s.audit.Record(e)
}

// logFault logs what only the operator may see: the cause of an error that is
// not the caller's.
func (s *Service) logFault(c *Call, v verdict, err error) {
	code := v.code()
	if code.Status() < 500 || code == api.CodeClosed {
		return
	}
	level := slog.LevelWarn
	if code == api.CodeInternal {
		level = slog.LevelError
	}
	s.logger.Log(context.Background(), level, "operation failed",
		"namespace", c.ns.Name, "operation", c.op.String(), "code", code, "request_id", c.RequestID, "error", err)
}

// refused ends a call that never reached an operation, as one whose body could
// not be read.
func (s *Service) refused(c *Call, err error) {
	s.finish(c, &subject{}, &contract.Result{}, err)
}

// hide takes from an answer the lease that the principal may not see: the
// holder's of a conflict, and an ended one of somebody else.
func (s *Service) hide(c *Call, res *contract.Result) {
	l := res.Lease
	if l == nil || res.Outcome.OK() {
		return
	}
	if l.Owner != c.Principal.Name && !s.auth.Authorize(c.Principal, onKey(VerbInspect, c.ns.Name, &l.Key)) {
		res.Lease = nil
	}
}

// observe takes the expiries that the stores record: nobody called for them.
func (s *Service) observe(e contract.Event) {
	ns, ok := s.router.byName[e.Namespace]
	if !ok {
		ns = s.router.unknown
	}
	ns.metrics.expirations.Inc()
	ns.metrics.lateness.Observe(e.Late.Seconds())
	if s.now().Add(-e.Late).Before(s.started) {
		ns.overdue.Add(1)
	}
	if s.audit == nil {
		return
	}
	s.audit.Record(&AuditEvent{
		Time: s.now(), RequestID: e.RequestID, TraceID: e.TraceID,
		Principal: e.Principal, Instance: e.Instance, Namespace: ns.Name,
		Key: e.Key, KeyID: e.KeyID, LeaseID: e.LeaseID, Token: e.Token,
		Operation: opExpire.String(), Outcome: e.Kind.String(),
		Previous: e.Previous, State: e.State, Latency: e.Late, Reason: e.Reason,
	})
}
