package contracttest

import (
	"math"
	"strings"
	"time"

	"leased/contract"
)

func validationRules() []Rule {
	return []Rule{
		{ID: "invalid-acquire", Func: invalidAcquire,
			Sentence: "An acquire that breaks a bound is invalid, names the field and grants nothing."},
		{ID: "invalid-key", Func: invalidKey,
			Sentence: "A key with a part missing, too long or not normalised never reaches the store's records."},
		{ID: "invalid-holder-calls", Func: invalidHolderCalls,
			Sentence: "A renew, release or revoke that breaks a bound is invalid, names the field and changes nothing."},
		{ID: "invalid-reads", Func: invalidReads,
			Sentence: "A read that breaks a bound is invalid and names the field; no token, key id or lease id is a wildcard."},
	}
}

// badText lists text that no identifier may be.
func badText(limit int) map[string]string {
	return map[string]string{
		"too long":           strings.Repeat("x", limit+1),
		"not UTF-8":          "a\xffb",
		"a control":          "a\x00b",
		"a line end":         "a\nb",
		"a leading space":    " a",
		"a trailing space":   "a ",
		"not NFC":            "e\u0301",
		"an invisible space": "a\u200bb",
	}
}

func badDurations() map[string]time.Duration {
	return map[string]time.Duration{
		"negative": -1, "too long": contract.MaxDuration + 1, "the longest there is": math.MaxInt64, "the most negative": math.MinInt64,
	}
}

// invalidCase is a request made wrong in one field.
type invalidCase[R any] struct {
	what, field string
	change      func(*R)
}

// identityCases are the fields that most requests have. set stores a value in a
// request.
func identityCases[R any](field string, limit int, required bool, set func(*R, string)) []invalidCase[R] {
	var cases []invalidCase[R]
	for what, text := range badText(limit) {
		cases = append(cases, invalidCase[R]{what, field, func(r *R) { set(r, text) }})
	}
	if required {
		cases = append(cases, invalidCase[R]{"missing", field, func(r *R) { set(r, "") }})
	}
	return cases
}

func requestIDCases[R any](set func(*R, string)) []invalidCase[R] {
	cases := identityCases("request_id", contract.MaxRequestID, true, set)
	return append(cases, invalidCase[R]{"not ASCII", "request_id", func(r *R) { set(r, "é") }},
		invalidCase[R]{"an inner space", "request_id", func(r *R) { set(r, "a b") }})
}

func durationCases[R any](field string, least time.Duration, set func(*R, time.Duration)) []invalidCase[R] {
	var cases []invalidCase[R]
	for what, d := range badDurations() {
		cases = append(cases, invalidCase[R]{what, field, func(r *R) { set(r, d) }})
	}
	if least > 0 {
		cases = append(cases, invalidCase[R]{"zero", field, func(r *R) { set(r, 0) }})
	}
	return cases
}

func retentionCases[R any](of func(*R) *contract.Retention) []invalidCase[R] {
	cases := durationCases("idempotency.keep", 1, func(r *R, d time.Duration) { of(r).Idempotency = d })
	cases = append(cases, durationCases("history.keep", 0, func(r *R, d time.Duration) { of(r).History = d })...)
	for _, n := range []int{math.MinInt, -1, 0, 1, contract.MaxHistoryRows + 1} {
		cases = append(cases, invalidCase[R]{"out of bounds", "history.per_key", func(r *R) { of(r).HistoryPerKey = n }})
	}
	return cases
}

func tokenCases[R any](field string, set func(*R, contract.Token)) []invalidCase[R] {
	var cases []invalidCase[R]
	for _, t := range []contract.Token{0, contract.MaxToken + 1, 1 << 63, math.MaxUint64} {
		cases = append(cases, invalidCase[R]{"out of bounds", field, func(r *R) { set(r, t) }})
	}
	return cases
}

// refusesEach sends each case made from good and wants the field named.
func refusesEach[R any](e *Env, op string, good R, cases []invalidCase[R], send func(*R) error) {
	e.Helper()
	for _, c := range cases {
		r := good
		c.change(&r)
		e.failed(op+" with "+c.field+" "+c.what, send(&r), contract.CodeInvalid, c.field)
	}
}

func invalidAcquire(e *Env) {
	type R = contract.AcquireRequest
	s := e.open()
	key := e.key("wanted")
	cases := identityCases("namespace", contract.MaxNamespace, true, func(r *R, v string) { r.Namespace = v })
	cases = append(cases, requestIDCases(func(r *R, v string) { r.RequestID = v })...)
	cases = append(cases, identityCases("owner", contract.MaxText, true, func(r *R, v string) { r.Owner = v })...)
	cases = append(cases, identityCases("instance", contract.MaxText, true, func(r *R, v string) { r.Instance = v })...)
	cases = append(cases, identityCases("execution_id", contract.MaxText, false, func(r *R, v string) { r.ExecutionID = v })...)
	cases = append(cases, identityCases("job_id", contract.MaxText, false, func(r *R, v string) { r.JobID = v })...)
	cases = append(cases, identityCases("trace_id", contract.MaxText, false, func(r *R, v string) { r.TraceID = v })...)
	cases = append(cases, durationCases("ttl_ms", 1, func(r *R, d time.Duration) { r.TTL = d })...)
	cases = append(cases, durationCases("max_lifetime_ms", 1, func(r *R, d time.Duration) { r.MaxLifetime = d })...)
	cases = append(cases, durationCases("wait_ms", 0, func(r *R, d time.Duration) { r.Wait = d })...)
	cases = append(cases, retentionCases(func(r *R) *contract.Retention { return &r.Retention })...)
	cases = append(cases,
		invalidCase[R]{"over the maximum lifetime", "ttl_ms", func(r *R) { r.TTL = r.MaxLifetime + 1 }},
		invalidCase[R]{"negative", "quotas", func(r *R) { r.Limits.LeasesPerOwner = -1 }},
		invalidCase[R]{"negative", "quotas", func(r *R) { r.Limits.WaitersPerKey = -1 }})
	good := e.newAcquire(key, alice)
	refusesEach(e, "acquire", *good, cases, func(r *R) error {
		_, err := s.Acquire(e.ctx(), r)
		return err
	})
	e.free(s, key)
	if events := e.history(s, key.ID()); len(events) != 0 {
		e.Errorf("invalid acquires left %d events in the key's history", len(events))
	}
	// Nothing of the refused attempts is remembered under the request id either.
	e.granted(s, good)
}

func invalidKey(e *Env) {
	s := e.open()
	type R = contract.AcquireRequest
	var cases []invalidCase[R]
	for _, part := range []struct {
		field    string
		limit    int
		required bool
		of       func(*contract.Key) *string
	}{
		{"key.tenant", 256, true, func(k *contract.Key) *string { return &k.Tenant }},
		{"key.program", 256, false, func(k *contract.Key) *string { return &k.Program }},
		{"key.target.id", 1024, true, func(k *contract.Key) *string { return &k.Target.ID }},
		{"key.actor", 256, true, func(k *contract.Key) *string { return &k.Actor }},
		{"key.workflow", 256, false, func(k *contract.Key) *string { return &k.Workflow }},
		{"key.operation", 256, false, func(k *contract.Key) *string { return &k.Operation }},
	} {
		set := func(r *R, v string) { *part.of(&r.Key) = v }
		cases = append(cases,
			invalidCase[R]{"too long", part.field, func(r *R) { set(r, strings.Repeat("x", part.limit+1)) }},
			invalidCase[R]{"with a control", part.field, func(r *R) { set(r, "a\x00") }},
			invalidCase[R]{"with a leading space", part.field, func(r *R) { set(r, " a") }},
			invalidCase[R]{"not normalised", "key", func(r *R) { set(r, "e\u0301") }})
		if part.required {
			cases = append(cases, invalidCase[R]{"missing", part.field, func(r *R) { set(r, "") }})
		} else {
			cases = append(cases, invalidCase[R]{"left to its default", "key", func(r *R) { set(r, "") }})
		}
	}
	target := func(typ contract.TargetType, id string) func(*R) {
		return func(r *R) { r.Key.Target = contract.Target{Type: typ, ID: id} }
	}
	cases = append(cases,
		invalidCase[R]{"unknown", "key.target.type", target("host", "x")},
		invalidCase[R]{"missing", "key.target.type", target("", "x")},
		invalidCase[R]{"in capitals", "key", target(contract.TargetDomain, "Example.com")},
		invalidCase[R]{"with a trailing dot", "key", target(contract.TargetDomain, "example.com.")},
		invalidCase[R]{"IPv4-mapped", "key", target(contract.TargetIP, "::ffff:192.0.2.1")},
		invalidCase[R]{"unmasked", "key", target(contract.TargetCIDR, "192.0.2.1/24")},
		invalidCase[R]{"without its path", "key", target(contract.TargetURL, "https://example.com")})
	refusesEach(e, "acquire", *e.newAcquire(e.key("good"), alice), cases, func(r *R) error {
		_, err := s.Acquire(e.ctx(), r)
		return err
	})
	if listed := e.list(s, contract.ListRequest{}); len(listed) != 0 {
		e.Errorf("acquires of invalid keys left %d leases", len(listed))
	}
}

func invalidHolderCalls(e *Env) {
	s := e.open()
	held := e.grant(s, e.key("held"), alice)
	invalidRenews(e, s, held)
	e.shows(s, held)
	invalidReleases(e, s, held)
	e.shows(s, held)
	invalidRevokes(e, s, held)
	e.shows(s, held)
}

func invalidRenews(e *Env, s contract.Store, held contract.Lease) {
	type R = contract.RenewRequest
	cases := identityCases("namespace", contract.MaxNamespace, true, func(r *R, v string) { r.Namespace = v })
	cases = append(cases, requestIDCases(func(r *R, v string) { r.RequestID = v })...)
	cases = append(cases, identityCases("owner", contract.MaxText, true, func(r *R, v string) { r.Owner = v })...)
	cases = append(cases, identityCases("instance", contract.MaxText, true, func(r *R, v string) { r.Instance = v })...)
	cases = append(cases, identityCases("trace_id", contract.MaxText, false, func(r *R, v string) { r.TraceID = v })...)
	cases = append(cases, tokenCases("token", func(r *R, t contract.Token) { r.Token = t })...)
	cases = append(cases, durationCases("ttl_ms", 0, func(r *R, d time.Duration) { r.TTL = d })...)
	cases = append(cases, retentionCases(func(r *R) *contract.Retention { return &r.Retention })...)
	cases = append(cases, invalidCase[R]{"missing", "lease_id", func(r *R) { r.LeaseID = contract.LeaseID{} }})
	refusesEach(e, "renew", *e.newRenew(held), cases, func(r *R) error {
		_, err := s.Renew(e.ctx(), r)
		return err
	})
}

func invalidReleases(e *Env, s contract.Store, held contract.Lease) {
	type R = contract.ReleaseRequest
	cases := identityCases("namespace", contract.MaxNamespace, true, func(r *R, v string) { r.Namespace = v })
	cases = append(cases, requestIDCases(func(r *R, v string) { r.RequestID = v })...)
	cases = append(cases, identityCases("owner", contract.MaxText, true, func(r *R, v string) { r.Owner = v })...)
	cases = append(cases, identityCases("instance", contract.MaxText, true, func(r *R, v string) { r.Instance = v })...)
	cases = append(cases, identityCases("trace_id", contract.MaxText, false, func(r *R, v string) { r.TraceID = v })...)
	cases = append(cases, tokenCases("token", func(r *R, t contract.Token) { r.Token = t })...)
	cases = append(cases, retentionCases(func(r *R) *contract.Retention { return &r.Retention })...)
	cases = append(cases, invalidCase[R]{"missing", "lease_id", func(r *R) { r.LeaseID = contract.LeaseID{} }})
	refusesEach(e, "release", *e.newRelease(held), cases, func(r *R) error {
		_, err := s.Release(e.ctx(), r)
		return err
	})
}

func invalidRevokes(e *Env, s contract.Store, held contract.Lease) {
	type R = contract.RevokeRequest
	cases := identityCases("namespace", contract.MaxNamespace, true, func(r *R, v string) { r.Namespace = v })
	cases = append(cases, requestIDCases(func(r *R, v string) { r.RequestID = v })...)
	cases = append(cases, identityCases("principal", contract.MaxText, true, func(r *R, v string) { r.Principal = v })...)
	cases = append(cases, identityCases("trace_id", contract.MaxText, false, func(r *R, v string) { r.TraceID = v })...)
	cases = append(cases, identityCases("reason", contract.MaxReason, true, func(r *R, v string) { r.Reason = v })...)
	cases = append(cases, retentionCases(func(r *R) *contract.Retention { return &r.Retention })...)
	cases = append(cases,
		invalidCase[R]{"missing", "lease_id", func(r *R) { r.LeaseID = contract.LeaseID{} }},
		invalidCase[R]{"missing", "mode", func(r *R) { r.Mode = 0 }},
		invalidCase[R]{"unknown", "mode", func(r *R) { r.Mode = 3 }})
	refusesEach(e, "revoke", *e.newRevoke(held), cases, func(r *R) error {
		_, err := s.Revoke(e.ctx(), r)
		return err
	})
}
