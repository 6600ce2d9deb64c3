package contract

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// Verb names an operation whose answers are stored under the request id.
type Verb uint8

// The verbs. Their numbers are part of stored scopes and never change.
const (
	_ Verb = iota
	VerbAcquire
	VerbRenew
	VerbRelease
	VerbRevoke
)

// Scope identifies one logical attempt: namespace, key, verb, principal and
// request id. It is a truncated SHA-256, so that a store keeps 16 bytes however
// long the texts are and no text of one principal can name another's attempt.
type Scope [16]byte

// Fingerprint stands for every input of a request that changes what it does.
// The same scope with another fingerprint is request_id_reused. Wait, deadline
// and trace id are not part of it: they change no state.
type Fingerprint [16]byte

// Scope returns the attempt that r belongs to.
func (r *AcquireRequest) Scope() Scope {
	return scope(r.Namespace, r.Key.ID(), VerbAcquire, r.Owner, r.RequestID)
}

// Scope returns the attempt that r belongs to.
func (r *RenewRequest) Scope() Scope {
	return scope(r.Namespace, r.LeaseID.KeyID(), VerbRenew, r.Owner, r.RequestID)
}

// Scope returns the attempt that r belongs to.
func (r *ReleaseRequest) Scope() Scope {
	return scope(r.Namespace, r.LeaseID.KeyID(), VerbRelease, r.Owner, r.RequestID)
}

// Scope returns the attempt that r belongs to.
func (r *RevokeRequest) Scope() Scope {
	return scope(r.Namespace, r.LeaseID.KeyID(), VerbRevoke, r.Principal, r.RequestID)
}

// Fingerprint returns what r would do.
func (r *AcquireRequest) Fingerprint() Fingerprint {
	h := newHasher()
	h.text(r.Instance)
	h.duration(r.TTL)
	h.duration(r.MaxLifetime)
	h.text(r.ExecutionID)
	h.text(r.JobID)
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		h.text(name)
		h.text(r.Metadata[name])
	}
	return Fingerprint(h.sum())
}

// Fingerprint returns what r would do.
func (r *RenewRequest) Fingerprint() Fingerprint {
	h := newHasher()
	h.text(r.Instance)
	h.bytes(r.LeaseID[:])
	h.number(uint64(r.Token))
	h.duration(r.TTL)
	return Fingerprint(h.sum())
}

// Fingerprint returns what r would do.
func (r *ReleaseRequest) Fingerprint() Fingerprint {
	h := newHasher()
	h.text(r.Instance)
	h.bytes(r.LeaseID[:])
	h.number(uint64(r.Token))
	return Fingerprint(h.sum())
}

// Fingerprint returns what r would do.
func (r *RevokeRequest) Fingerprint() Fingerprint {
	h := newHasher()
	h.bytes(r.LeaseID[:])
	h.number(uint64(r.Mode))
	h.text(r.Reason)
	return Fingerprint(h.sum())
}

func scope(namespace string, key KeyID, verb Verb, principal, requestID string) Scope {
	h := newHasher()
	h.text(namespace)
	h.bytes(key[:])
	h.number(uint64(verb))
	h.text(principal)
	h.text(requestID)
	return Scope(h.sum())
}

// hasher writes each part with its length before it, so that parts cannot run
// into each other: ("a", "bc") is not ("ab", "c").
type hasher struct {
	buf []byte
}

func newHasher() *hasher { return &hasher{buf: make([]byte, 0, 256)} }

func (h *hasher) bytes(b []byte) {
	h.number(uint64(len(b)))
	h.buf = append(h.buf, b...)
}

func (h *hasher) text(s string) {
	h.number(uint64(len(s)))
	h.buf = append(h.buf, s...)
}

func (h *hasher) number(n uint64) { h.buf = binary.BigEndian.AppendUint64(h.buf, n) }

func (h *hasher) duration(d time.Duration) { h.number(uint64(d)) }

func (h *hasher) sum() [16]byte {
	sum := sha256.Sum256(h.buf)
	return [16]byte(sum[:16])
}
