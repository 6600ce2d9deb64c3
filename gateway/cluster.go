package gateway

import (
	"context"
	"io"
	"time"

	"leased/contract"
	"leased/gateway/api"
)

// Cluster is what the gateway needs of the nodes behind a raftkv backend. Errors
// are *contract.Error, or what NotFound makes.
type Cluster interface {
	Status(ctx context.Context) (*api.Cluster, error)
	AddMember(ctx context.Context, r *api.AddMemberRequest) error
	RemoveMember(ctx context.Context, id string) error
	// Transfer makes the node lead; "" lets the leader choose.
	Transfer(ctx context.Context, to string) error
	Backup(ctx context.Context) (*Backup, error)
	// Restore reads a backup whole before anything changes.
	Restore(ctx context.Context, from io.Reader) (*api.RestoreReply, error)
}

// Backup is a backup that can be written once.
type Backup struct {
	ClusterID string
	Index     uint64
	Time      time.Time
	Write     func(io.Writer) error
}

// NotFound returns an error that is answered as not_found.
func NotFound(detail string) error { return refuse(api.CodeNotFound, detail) }

// What is done to a cluster, in the audit log.
const (
	auditAddMember    = "cluster_add"
	auditRemoveMember = "cluster_remove"
	auditTransfer     = "cluster_transfer"
	auditBackup       = "cluster_backup"
	auditRestore      = "cluster_restore"
)

// administer does something to the cluster on behalf of a principal that may, and
// records it whatever comes of it. about says to what.
func (s *Service) administer(c *Call, operation, about string, do func(Cluster) error) error {
	start := s.now()
	err := s.mayAdminister(c)
	if err == nil {
		err = do(s.cluster)
	}
	if s.audit == nil {
		return err
	}
	e := &AuditEvent{
		Time: s.now(), RequestID: c.RequestID, TraceID: c.TraceID, Principal: c.Principal.Name,
		Operation: operation, Outcome: "done", Latency: s.now().Sub(start), Reason: about,
	}
	if err != nil {
		code := codeOf(err)
		e.Outcome, e.Code = string(code), string(code)
	}
	s.audit.Record(e)
	return err
}

func (s *Service) mayAdminister(c *Call) error {
	if !s.auth.Authorize(c.Principal, Action{Verb: VerbAdmin}) {
		return refuse(api.CodeDenied, `needs the right "admin"`)
	}
	return s.hasCluster()
}

func (s *Service) hasCluster() error {
	switch {
	case s.cluster == nil:
		return refuse(api.CodeNotFound, "no backend of this server is a raftkv cluster")
	case s.drainer.isDraining():
		return errClosed()
	}
	return nil
}

// validMember refuses what cannot be the id of a node.
func validMember(field, id string) error {
	if id == "" {
		return contract.Invalid(field, "is missing; it is the node.id of a member")
	}
	_, err := contract.NormalizeText(field, id, contract.MaxNamespace, true)
	return err
}
