package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"leased/contract"
	"leased/gateway/api"
)

func (h *handler) showCluster(x *exchange) error {
	if err := h.service.hasCluster(); err != nil {
		return err
	}
	ctx, cancel := h.service.bound(x.r.Context(), &x.call, 0)
	defer cancel()
	status, err := h.service.cluster.Status(ctx)
	if err != nil {
		return err
	}
	return x.reply(status)
}

// administer carries out something done to the cluster that answers its outcome.
func (x *exchange) administer(operation, about, outcome string, do func(Cluster) error) error {
	if err := x.h.service.administer(&x.call, operation, about, do); err != nil {
		return err
	}
	x.outcome = outcome
	return x.reply(&api.ClusterReply{Outcome: outcome})
}

// maxAddress is a name of the DNS with a port behind it, in bytes.
const maxAddress = 253 + len(":65535")

func (h *handler) addMember(x *exchange) error {
	var in api.AddMemberRequest
	err := x.decodeBody(&in, maxBody)
	if err == nil {
		err = validMember("id", in.ID)
	}
	switch {
	case err != nil:
	case in.Address == "":
		err = contract.Invalid("address", "is missing; it is the host:port of the node's peer port")
	default:
		in.Address, err = contract.NormalizeText("address", in.Address, maxAddress, true)
	}
	if err != nil {
		return err
	}
	ctx, cancel := h.service.bound(x.r.Context(), &x.call, 0)
	defer cancel()
	return x.administer(auditAddMember, in.ID, api.OutcomeAdded, func(c Cluster) error { return c.AddMember(ctx, &in) })
}

func (h *handler) removeMember(x *exchange) error {
	id := x.param("id")
	if err := validMember("id", id); err != nil {
		return err
	}
	ctx, cancel := h.service.bound(x.r.Context(), &x.call, 0)
	defer cancel()
	return x.administer(auditRemoveMember, id, api.OutcomeRemoved, func(c Cluster) error { return c.RemoveMember(ctx, id) })
}

func (h *handler) transfer(x *exchange) error {
	var in api.TransferRequest
	err := x.decodeBody(&in, maxBody)
	if err == nil && in.To != "" {
		err = validMember("to", in.To)
	}
	if err != nil {
		return err
	}
	ctx, cancel := h.service.bound(x.r.Context(), &x.call, 0)
	defer cancel()
	return x.administer(auditTransfer, in.To, api.OutcomeTransferred, func(c Cluster) error { return c.Transfer(ctx, in.To) })
}

// backup streams a backup. One that fails on the way is cut, so that it cannot be
// taken for a whole one; its checksum is missing too.
func (h *handler) backup(x *exchange) error {
	ctx, cancel := h.service.bound(x.r.Context(), &x.call, h.service.maxTimeout)
	defer cancel()
	var failed error
	err := h.service.administer(&x.call, auditBackup, "", func(c Cluster) error {
		b, err := c.Backup(ctx)
		if err != nil {
			return err
		}
		header := x.c.Writer.Header()
		header.Set("Content-Type", api.BackupMediaType)
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="leased-%s-%d.backup"`, b.Time.UTC().Format("20060102T150405Z"), b.Index))
		x.limitRest()
		x.c.Writer.WriteHeader(http.StatusOK)
		failed = b.Write(&paced{w: x.c.Writer, control: http.NewResponseController(x.c.Writer)})
		return failed
	})
	if failed != nil {
		h.service.logger.Warn("backup cut", "request_id", x.call.RequestID, "error", failed)
		panic(http.ErrAbortHandler)
	}
	return err
}

// paced writes to and reads from a client that may take its time, as long as it
// goes on: each step has a deadline of its own.
type paced struct {
	w       io.Writer
	r       io.Reader
	control *http.ResponseController
	// patience is how long one read may take.
	patience time.Duration

	mu    sync.Mutex
	ended bool // no read gets time any more
}

// Write implements io.Writer.
func (p *paced) Write(b []byte) (int, error) {
	// An error says that the writer, as a test's, has no connection below it.
	_ = p.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return p.w.Write(b)
}

// Read implements io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	p.mu.Lock()
	if !p.ended {
		_ = p.control.SetReadDeadline(time.Now().Add(p.patience)) // as above
	}
	p.mu.Unlock()
	return p.r.Read(b)
}

// SetReadDeadline ends the read that runs, and later ones, at the instant: a store
// that closes does not wait for the rest of a backup.
func (p *paced) SetReadDeadline(at time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	return p.control.SetReadDeadline(at)
}

// limited is a body of limited size that tells whether it was too large: whoever
// reads it may say only that it ended.
type limited struct {
	from     io.Reader
	exceeded bool
}

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	n, err := l.from.Read(b)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		l.exceeded = true
	}
	return n, err
}

func (h *handler) restore(x *exchange) error {
	if got := x.r.Header.Get("Content-Type"); got != api.BackupMediaType {
		return refuse(api.CodeUnsupportedMediaType, "send the backup as "+api.BackupMediaType)
	}
	ctx, cancel := h.service.bound(x.r.Context(), &x.call, h.service.maxTimeout)
	defer cancel()
	control := http.NewResponseController(x.c.Writer)
	var reply *api.RestoreReply
	err := h.service.administer(&x.call, auditRestore, "", func(c Cluster) error {
		var err error
		body := &limited{from: http.MaxBytesReader(x.c.Writer, x.r.Body, h.service.maxRestore)}
		reply, err = c.Restore(ctx, &paced{r: body, control: control, patience: h.service.bodyTimeout})
		if err != nil && body.exceeded {
			// What is read is restored once it is whole, so nothing was.
			return refuse(api.CodeTooLarge, fmt.Sprintf("the backup is larger than %d bytes", h.service.maxRestore))
		}
		return err
	})
	x.bodyLimit = time.Now().Add(h.service.bodyTimeout) // at most, since the last read of paced
	if err != nil {
		return err
	}
	reply.Outcome, x.outcome = api.OutcomeRestored, api.OutcomeRestored
	return x.reply(reply)
}
