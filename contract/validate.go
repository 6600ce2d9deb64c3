package contract

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *AcquireRequest) Validate() error {
	key, err := r.Key.Normalize()
	switch {
	case err != nil:
		return err
	case key != r.Key:
		return Invalid("key", "must be normalised before it reaches a store")
	}
	if err := validCall(r.Namespace, r.RequestID, r.Retention); err != nil {
		return err
	}
	if err := validHolder(r.Owner, r.Instance); err != nil {
		return err
	}
	if err := validDuration("ttl_ms", r.TTL, 1); err != nil {
		return err
	}
	if err := validDuration("max_lifetime_ms", r.MaxLifetime, 1); err != nil {
		return err
	}
	if r.TTL > r.MaxLifetime {
		return Invalid("ttl_ms", "is %d, more than the maximum lifetime of %d", r.TTL.Milliseconds(), r.MaxLifetime.Milliseconds())
	}
	if err := validDuration("wait_ms", r.Wait, 0); err != nil {
		return err
	}
	for _, text := range [...]struct{ field, s string }{
		{"execution_id", r.ExecutionID}, {"job_id", r.JobID}, {"trace_id", r.TraceID},
	} {
		if err := validText(text.field, text.s, MaxText, false); err != nil {
			return err
		}
	}
	if r.Limits.LeasesPerOwner < 0 || r.Limits.WaitersPerKey < 0 {
		return Invalid("quotas", "must not be negative")
	}
	return ValidateMetadata(r.Metadata)
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *RenewRequest) Validate() error {
	if err := validCall(r.Namespace, r.RequestID, r.Retention); err != nil {
		return err
	}
	if err := validHolder(r.Owner, r.Instance); err != nil {
		return err
	}
	if err := validLease(r.LeaseID, r.Token); err != nil {
		return err
	}
	if err := validText("trace_id", r.TraceID, MaxText, false); err != nil {
		return err
	}
	return validDuration("ttl_ms", r.TTL, 0)
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *RenewBulkRequest) Validate() error {
	if err := validCall(r.Namespace, r.RequestID, r.Retention); err != nil {
		return err
	}
	if err := validHolder(r.Owner, r.Instance); err != nil {
		return err
	}
	if err := validText("trace_id", r.TraceID, MaxText, false); err != nil {
		return err
	}
	if len(r.Leases) == 0 || len(r.Leases) > MaxBulk {
		return Invalid("leases", "must name 1 to %d leases, not %d", MaxBulk, len(r.Leases))
	}
	seen := make(map[LeaseID]bool, len(r.Leases))
	for i, item := range r.Leases {
		at := "leases[" + strconv.Itoa(i) + "]"
		switch {
		case item.LeaseID.IsZero():
			return Invalid(at+".lease_id", "is required")
		case seen[item.LeaseID]:
			return Invalid(at+".lease_id", "is named twice")
		}
		if err := ValidateToken(at+".token", item.Token); err != nil {
			return err
		}
		seen[item.LeaseID] = true
	}
	return nil
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *ReleaseRequest) Validate() error {
	if err := validCall(r.Namespace, r.RequestID, r.Retention); err != nil {
		return err
	}
	if err := validHolder(r.Owner, r.Instance); err != nil {
		return err
	}
	if err := validText("trace_id", r.TraceID, MaxText, false); err != nil {
		return err
	}
	return validLease(r.LeaseID, r.Token)
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *RevokeRequest) Validate() error {
	if err := validCall(r.Namespace, r.RequestID, r.Retention); err != nil {
		return err
	}
	if err := validText("principal", r.Principal, MaxText, true); err != nil {
		return err
	}
	if r.LeaseID.IsZero() {
		return Invalid("lease_id", "is required")
	}
	if r.Mode != RevokeRight && r.Mode != RevokeForceRelease {
		return Invalid("mode", "must be revoke or force_release")
	}
	if err := validText("trace_id", r.TraceID, MaxText, false); err != nil {
		return err
	}
	return validText("reason", r.Reason, MaxReason, true)
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *CheckRequest) Validate() error {
	if err := validKey(r.Namespace, r.KeyID); err != nil {
		return err
	}
	return ValidateToken("token", r.Token)
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *GetRequest) Validate() error {
	if err := validNamespace(r.Namespace); err != nil {
		return err
	}
	if r.LeaseID.IsZero() {
		return Invalid("lease_id", "is required")
	}
	return nil
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *GetKeyRequest) Validate() error { return validKey(r.Namespace, r.KeyID) }

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *ListRequest) Validate() error {
	if err := validNamespace(r.Namespace); err != nil {
		return err
	}
	if r.State != 0 && (r.State < StateActive || r.State > StateRevoked) {
		return errState()
	}
	return validPage(r.Limit)
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *HistoryRequest) Validate() error {
	if err := validKey(r.Namespace, r.KeyID); err != nil {
		return err
	}
	return validPage(r.Limit)
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *WatchRequest) Validate() error {
	if err := validNamespace(r.Namespace); err != nil {
		return err
	}
	if r.Kinds&^KindsOf(EventAcquired, EventRenewed, EventReleased, EventExpired, EventRevoked) != 0 {
		return Invalid("event", "is not a kind of event that can be selected")
	}
	return nil
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *RaiseFloorRequest) Validate() error {
	if err := validNamespace(r.Namespace); err != nil {
		return err
	}
	return ValidateToken("above", r.Above)
}

// Validate returns a CodeInvalid error for the first rule that r breaks.
func (r *HealthRequest) Validate() error { return validNamespace(r.Namespace) }

// ValidateToken refuses a token that no grant can have. Zero is not a wildcard.
func ValidateToken(field string, t Token) error {
	if t == 0 || t > MaxToken {
		return Invalid(field, "must be a token from 1 to %d", uint64(MaxToken))
	}
	return nil
}

// ValidateRequestID refuses a request id that is not 1 to MaxRequestID visible
// ASCII characters.
func ValidateRequestID(field, id string) error {
	if id == "" || len(id) > MaxRequestID {
		return Invalid(field, "must have 1 to %d characters, not %d", MaxRequestID, len(id))
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return Invalid(field, "must be visible ASCII")
		}
	}
	return nil
}

// ValidateMetadata refuses more than MaxMetadataPairs pairs or MaxMetadataBytes
// bytes of names and values, an empty name, and text that is not valid UTF-8.
func ValidateMetadata(m map[string]string) error {
	if len(m) > MaxMetadataPairs {
		return Invalid("metadata", "has %d pairs; at most %d are kept", len(m), MaxMetadataPairs)
	}
	size := 0
	for name, value := range m {
		switch {
		case name == "":
			return Invalid("metadata", "has a pair with no name")
		case len(name) > MaxMetadataNameLen:
			return Invalid("metadata", "has a name of %d bytes; at most %d are kept", len(name), MaxMetadataNameLen)
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			return Invalid("metadata", "is not valid UTF-8")
		}
		size += len(name) + len(value)
	}
	if size > MaxMetadataBytes {
		return Invalid("metadata", "has %d bytes; at most %d are kept", size, MaxMetadataBytes)
	}
	return nil
}

func validCall(namespace, requestID string, keep Retention) error {
	if err := validNamespace(namespace); err != nil {
		return err
	}
	if err := ValidateRequestID("request_id", requestID); err != nil {
		return err
	}
	if err := validDuration("idempotency.keep", keep.Idempotency, 1); err != nil {
		return err
	}
	if err := validDuration("history.keep", keep.History, 0); err != nil {
		return err
	}
	if keep.HistoryPerKey < 2 || keep.HistoryPerKey > MaxHistoryRows {
		return Invalid("history.per_key", "must be 2 to %d events, not %d", MaxHistoryRows, keep.HistoryPerKey)
	}
	return nil
}

func validHolder(owner, instance string) error {
	if err := validText("owner", owner, MaxText, true); err != nil {
		return err
	}
	return validText("instance", instance, MaxText, true)
}

func validLease(id LeaseID, token Token) error {
	if id.IsZero() {
		return Invalid("lease_id", "is required")
	}
	return ValidateToken("token", token)
}

func validKey(namespace string, id KeyID) error {
	if err := validNamespace(namespace); err != nil {
		return err
	}
	if id.IsZero() {
		return Invalid("key_id", "is required")
	}
	return nil
}

func validNamespace(namespace string) error {
	return validText("namespace", namespace, MaxNamespace, true)
}

// validText holds text to what NormalizeText answers: a store gets text that
// was normalised already.
func validText(field, s string, maxBytes int, required bool) error {
	norm, err := NormalizeText(field, s, maxBytes, required)
	if err == nil && norm != s {
		return Invalid(field, "must be normalised before it reaches a store")
	}
	return err
}

func validDuration(field string, d, least time.Duration) error {
	if d < least || d > MaxDuration {
		return Invalid(field, "must be %d to %d ms", (least+time.Millisecond-1)/time.Millisecond, MaxDuration.Milliseconds())
	}
	return nil
}

func validPage(limit int) error {
	if limit < 0 || limit > MaxPage {
		return Invalid("limit", "must be 1 to %d", MaxPage)
	}
	return nil
}
