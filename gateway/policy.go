package gateway

import (
	"time"

	"leased/contract"
)

// Policy is what a namespace allows. A request outside it is refused and told
// the bound; it is never clamped, because a caller that was silently given less
// than it asked for would trust a lease for too long.
type Policy struct {
	TTL         TTLPolicy
	MaxLifetime time.Duration // cap, and the default, of a lease's maximum lifetime
	MaxWait     time.Duration // longest wait_ms; 0 forbids waiting
	History     HistoryPolicy
	Idempotency IdempotencyPolicy
	Quotas      QuotaPolicy
}

// TTLPolicy bounds the TTL and says what a request without one gets.
type TTLPolicy struct {
	Min, Default, Max time.Duration
}

// HistoryPolicy says how much of a key's history is kept.
type HistoryPolicy struct {
	Keep   time.Duration
	PerKey int // events
}

// IdempotencyPolicy says how long an answer can be replayed. The gateway keeps
// it at least as long as the longest TTL: a holder may retry for as long as it
// can believe in its lease.
type IdempotencyPolicy struct {
	Keep time.Duration
}

// QuotaPolicy holds the quotas; zero means unlimited.
type QuotaPolicy struct {
	LeasesPerOwner int
	WaitersPerKey  int
}

// minIdempotency is the shortest time that any namespace keeps its answers.
const minIdempotency = 10 * time.Minute

// DefaultPolicy returns the policy of a namespace that says nothing of its own.
func DefaultPolicy() Policy {
	return Policy{
		TTL:         TTLPolicy{Min: time.Second, Default: 30 * time.Second, Max: time.Hour},
		MaxLifetime: 24 * time.Hour,
		MaxWait:     5 * time.Minute,
		History:     HistoryPolicy{Keep: 168 * time.Hour, PerKey: 64},
		Idempotency: IdempotencyPolicy{Keep: minIdempotency},
		Quotas:      QuotaPolicy{WaitersPerKey: 10000},
	}
}

// Validate returns a *contract.Error with CodeInvalid for the first setting that
// makes no sense. Its Field is the setting's path in the configuration file,
// below the namespace ("ttl.default").
func (p *Policy) Validate() error {
	for _, d := range [...]struct {
		field    string
		d, least time.Duration
	}{
		{"ttl.min", p.TTL.Min, time.Millisecond},
		{"ttl.default", p.TTL.Default, time.Millisecond},
		{"ttl.max", p.TTL.Max, time.Millisecond},
		{"max_lifetime", p.MaxLifetime, time.Millisecond},
		{"max_wait", p.MaxWait, 0},
		{"history.keep", p.History.Keep, 0},
		{"idempotency.keep", p.Idempotency.Keep, minIdempotency},
	} {
		switch {
		case d.d < d.least || d.d > contract.MaxDuration:
			return contract.Invalid(d.field, "is %v; it must be %v to %v", d.d, d.least, contract.MaxDuration)
		case d.d%time.Millisecond != 0:
			// The API speaks milliseconds: a finer bound could not be told.
			return contract.Invalid(d.field, "is %v; it must be whole milliseconds", d.d)
		}
	}
	switch {
	case p.TTL.Default < p.TTL.Min:
		return contract.Invalid("ttl.default", "is %v, less than ttl.min, %v", p.TTL.Default, p.TTL.Min)
	case p.TTL.Default > p.TTL.Max:
		return contract.Invalid("ttl.default", "is %v, more than ttl.max, %v", p.TTL.Default, p.TTL.Max)
	case p.TTL.Max > p.MaxLifetime:
		return contract.Invalid("max_lifetime", "is %v, less than ttl.max, %v", p.MaxLifetime, p.TTL.Max)
	case p.History.PerKey < 2 || p.History.PerKey > contract.MaxHistoryRows:
		return contract.Invalid("history.per_key", "is %d; it must be 2 to %d", p.History.PerKey, contract.MaxHistoryRows)
	case p.Quotas.LeasesPerOwner < 0:
		return contract.Invalid("quotas.leases_per_owner", "is %d; it must not be negative, and 0 means unlimited", p.Quotas.LeasesPerOwner)
	case p.Quotas.WaitersPerKey < 0:
		return contract.Invalid("quotas.waiters_per_key", "is %d; it must not be negative, and 0 means unlimited", p.Quotas.WaitersPerKey)
	}
	return nil
}

func (p *Policy) retention() contract.Retention {
	return contract.Retention{
		Idempotency:   max(p.Idempotency.Keep, p.TTL.Max),
		History:       p.History.Keep,
		HistoryPerKey: p.History.PerKey,
	}
}

func (p *Policy) limits() contract.Limits {
	return contract.Limits{LeasesPerOwner: p.Quotas.LeasesPerOwner, WaitersPerKey: p.Quotas.WaitersPerKey}
}

// ttl returns the TTL that a request's ttl_ms stands for, absent if nil.
func (p *Policy) ttl(ms *int64, absent time.Duration) (time.Duration, error) {
	if ms == nil {
		return absent, nil
	}
	return within("ttl_ms", *ms, p.TTL.Min, p.TTL.Max)
}

// lifetime returns the maximum lifetime that a request's max_lifetime_ms stands
// for.
func (p *Policy) lifetime(ms *int64) (time.Duration, error) {
	if ms == nil {
		return p.MaxLifetime, nil
	}
	return within("max_lifetime_ms", *ms, p.TTL.Min, p.MaxLifetime)
}

func (p *Policy) wait(ms int64) (time.Duration, error) {
	return within("wait_ms", ms, 0, p.MaxWait)
}

// within compares in milliseconds: 2⁶³−1 of them would wrap round as a
// time.Duration and could land inside the bounds.
func within(field string, ms int64, least, most time.Duration) (time.Duration, error) {
	if ms < least.Milliseconds() || ms > most.Milliseconds() {
		return 0, contract.Invalid(field, "is %d; this namespace allows %d to %d", ms, least.Milliseconds(), most.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}
