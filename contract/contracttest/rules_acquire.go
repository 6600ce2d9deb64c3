package contracttest

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"leased/contract"
)

func acquireRules() []Rule {
	return []Rule{
		{ID: "acquire-one-winner", Func: acquireOneWinner,
			Sentence: "Of any number of acquires of a free key that race over several gateways exactly one is granted, and the others are told of that one."},
		{ID: "acquire-grant-complete", Func: acquireGrantComplete,
			Sentence: "A grant shows every field as asked for, active, never renewed, with no more than its TTL left, and every read shows the same lease."},
		{ID: "acquire-ttl-rounded-up", Func: acquireTTLRoundedUp,
			Sentence: "The granted TTL is at least the one asked for and at most that, or the shortest the backend can grant, rounded up to its granularity."},
		{ID: "acquire-conflict-shows-holder", Func: acquireConflictShowsHolder,
			Sentence: "A held key is a conflict that shows the holder's lease and how many wait, and changes nothing."},
		{ID: "acquire-not-reentrant", Func: acquireNotReentrant,
			Sentence: "The holder itself, asking again with another request id, gets a conflict as everybody does."},
		{ID: "acquire-lease-id-new", Func: acquireLeaseIDNew,
			Sentence: "Every grant has a new lease id that leads to its key and that nobody can guess."},
		{ID: "acquire-metadata-limits", Func: acquireMetadataLimits,
			Sentence: "Metadata up to 16 pairs and 4 KiB is kept as it is, and more is invalid and grants nothing."},
		{ID: "acquire-quota-leases", Func: acquireQuotaLeases,
			Sentence: "An owner with as many active leases as the namespace allows is refused another, free or held, until one of them ends, and nobody else is."},
		{ID: "acquire-quota-exact", Func: acquireQuotaRaced,
			Sentence: "Acquires of one owner that race each other never take it over its quota where the backend declares quotas exact, and never lock it out below."},
	}
}

func acquireOneWinner(e *Env) {
	a, b := e.pair()
	for round := range 4 {
		key := e.key(fmt.Sprint("round-", round))
		var answers [64]contract.Result
		var errs [64]error
		e.race(len(answers), func(i int) {
			// Eight owners, so that attempts of one owner contend too.
			r := e.newAcquire(key, fmt.Sprint("owner-", i%8))
			answers[i], errs[i] = pick(i, a, b).Acquire(e.ctx(), r)
		})
		var winner *contract.Lease
		for i, res := range answers {
			if errs[i] != nil {
				e.Fatalf("acquire %d: got error %v", i, errs[i])
			}
			if res.Outcome != contract.OutcomeAcquired {
				continue
			}
			if winner != nil {
				e.Fatalf("two of %d racing acquires were granted: tokens %d and %d", len(answers), winner.Token, res.Lease.Token)
			}
			winner = e.answered("acquire", res, nil, contract.OutcomeAcquired).Lease
		}
		if winner == nil {
			e.Fatalf("none of %d racing acquires of a free key was granted", len(answers))
		}
		for i, res := range answers {
			if res.Outcome != contract.OutcomeAcquired {
				lost := e.answered(fmt.Sprint("acquire ", i), res, nil, contract.OutcomeConflict)
				e.sameLease("the holder that a loser was shown", *lost.Lease, *winner)
			}
		}
		e.shows(pick(round, a, b), *winner)
	}
}

// pick spreads calls over two gateways.
func pick(i int, a, b contract.Store) contract.Store {
	if i%2 == 0 {
		return a
	}
	return b
}

// trickyMetadata has what text-based stores and scripts trip over: their own
// separators, numbers that look like numbers, and nothing at all.
func trickyMetadata() map[string]string {
	return map[string]string{
		"purpose": "nightly", "empty": "", "{tag}": "a/b:c%2F\x00\n\"'\\", "1": "1e+14", "naïve": "日本語 👩‍🚀", " ": " ",
	}
}

func acquireGrantComplete(e *Env) {
	a, b := e.pair()
	key := e.normal(contract.Key{
		Tenant: "acme {1}", Program: "re:con/x", Target: contract.Target{Type: contract.TargetDomain, ID: "Bücher.Example."},
		Actor: "crawler%", Workflow: "Wörk", Operation: "scan *",
	})
	r := e.newAcquire(key, "svc:a/b {x} é")
	r.Instance = "worker 7|1"
	r.TTL, r.MaxLifetime = e.ttl(90*time.Second), 20*e.ttl(90*time.Second)
	r.ExecutionID, r.JobID, r.TraceID = "exec-1", "job 17", "4bf92f3577b34da6a3ce929d0e0e4736"
	r.Metadata = trickyMetadata()

	m := e.mark()
	got := e.granted(a, r)
	took := e.atMost(m)

	e.sameLease("the grant", got, contract.Lease{
		RecordVersion: contract.RecordVersion, Namespace: r.Namespace, Key: key, KeyID: key.ID(), ID: got.ID,
		Owner: r.Owner, Instance: r.Instance, Token: got.Token, State: contract.StateActive,
		AcquiredAt: got.AcquiredAt, RenewedAt: got.AcquiredAt, ExpiresAt: got.ExpiresAt,
		TTL: r.TTL, MaxLifetime: r.MaxLifetime,
		ExecutionID: r.ExecutionID, JobID: r.JobID, TraceID: r.TraceID, RequestID: r.RequestID,
		Metadata: trickyMetadata(),
	})
	if life := got.ExpiresAt.Sub(got.AcquiredAt); (life - r.TTL).Abs() > precision {
		e.Errorf("acquired at %v and expires at %v: that is %v, want the TTL of %v", got.AcquiredAt, got.ExpiresAt, life, r.TTL)
	}
	e.leftAfter("the grant", got.ExpiresIn, r.TTL, 0, took)
	e.shows(a, got)
	e.shows(b, got)
}

// leftAfter wants what is left of a life after between least and most of it
// have passed. The bounds allow for the steps in which the backend counts: a
// clock cut to milliseconds shows up to one less passed than did.
func (e *Env) leftAfter(what string, left, life, least, most time.Duration) {
	e.Helper()
	step := max(e.harness.Guarantees.Granularity, precision)
	if left > life || left > life-least+precision {
		e.Fatalf("%s has %v left of %v after at least %v: more than there is", what, left, life, least)
	}
	if left < life-most-step {
		e.Fatalf("%s has %v left of %v after at most %v", what, left, life, most)
	}
}

func acquireTTLRoundedUp(e *Env) {
	s := e.open()
	step, least := e.harness.Guarantees.Granularity, e.harness.Guarantees.MinTTL
	asks := []time.Duration{
		e.ttl(0), e.ttl(0) + step, 3 * e.ttl(time.Second), 90*time.Second + time.Millisecond, time.Hour + 1,
		e.long() - 1, time.Millisecond, 1,
	}
	for i, ask := range asks {
		r := e.newAcquire(e.key(fmt.Sprint("ttl-", i)), alice)
		r.TTL = ask
		m := e.mark()
		got := e.granted(s, r)
		most := roundUp(max(ask, least), step)
		if got.TTL < ask || got.TTL > most {
			e.Errorf("asked for %v, granted %v, want %v to %v", ask, got.TTL, ask, most)
		}
		if life := got.ExpiresAt.Sub(got.AcquiredAt); (life - got.TTL).Abs() > precision {
			e.Errorf("asked for %v: granted %v, but it ends after %v", ask, got.TTL, life)
		}
		e.leftAfter(fmt.Sprintf("a grant of %v", ask), got.ExpiresIn, got.TTL, 0, e.atMost(m))
	}
}

func acquireConflictShowsHolder(e *Env) {
	a, b := e.pair()
	key := e.key("held")
	r := e.newAcquire(key, alice)
	r.Metadata, r.JobID = trickyMetadata(), "job-17"
	held := e.granted(a, r)

	for queued := range 3 {
		for _, s := range []contract.Store{a, b} {
			res := e.acquire(s, e.newAcquire(key, bob), contract.OutcomeConflict)
			e.sameLease("the holder in the conflict", *res.Lease, held)
			if want := (contract.Queue{Length: queued}); res.Queue != want {
				e.Errorf("queue in the conflict: got %+v, want %+v", res.Queue, want)
			}
		}
		e.shows(b, held)
		e.park(pick(queued, a, b), e.newWaiter(key, carol))
	}
}

func acquireNotReentrant(e *Env) {
	a, b := e.pair()
	r := e.newAcquire(e.key("held"), alice)
	held := e.granted(a, r)
	for _, s := range []contract.Store{a, b} {
		again := *r
		again.RequestID = e.id("again")
		res := e.acquire(s, &again, contract.OutcomeConflict)
		e.sameLease("the holder in the conflict", *res.Lease, held)
		e.shows(s, held)
	}
}

func acquireLeaseIDNew(e *Env) {
	s := e.open()
	const grants = 64
	var ones [128]int // how often each bit of the unguessable half was set
	seen := map[contract.LeaseID]bool{}
	key := e.key("often")
	for range grants {
		l := e.grant(s, key, alice) // answered() holds the first half to the key id
		if seen[l.ID] {
			e.Fatalf("lease id %s was granted twice", l.ID)
		}
		seen[l.ID] = true
		for i, octet := range l.ID[16:] {
			for ; octet != 0; octet &= octet - 1 {
				ones[i*8+bits.TrailingZeros8(octet)]++
			}
		}
		e.end(s, l)
	}
	// A counter or a clock leaves high bits alone. Random bits all change in 64
	// draws, but for one run in 2⁵⁶.
	for bit, n := range ones {
		if n == 0 || n == grants {
			e.Fatalf("bit %d of the unguessable half was the same in %d lease ids", bit, grants)
		}
	}
}

func acquireMetadataLimits(e *Env) {
	s := e.open()
	pairs := map[string]string{}
	for i := range contract.MaxMetadataPairs {
		name := fmt.Sprintf("n%02d", i)
		pairs[name] = strings.Repeat("v", contract.MaxMetadataBytes/contract.MaxMetadataPairs-len(name))
	}
	r := e.newAcquire(e.key("full"), alice)
	r.Metadata = pairs
	e.shows(s, e.granted(s, r))

	one := func(name, value string) map[string]string { return map[string]string{name: value} }
	more := map[string]string{}
	for i := range contract.MaxMetadataPairs + 1 {
		more[fmt.Sprint(i)] = ""
	}
	for what, bad := range map[string]map[string]string{
		"17 pairs":            more,
		"4,097 bytes":         one("n", strings.Repeat("v", contract.MaxMetadataBytes)),
		"no name":             one("", "v"),
		"a name of 257 bytes": one(strings.Repeat("n", contract.MaxMetadataNameLen+1), "v"),
		"a name not UTF-8":    one("\xff", "v"),
		"a value not UTF-8":   one("n", "\xc3"),
	} {
		r := e.newAcquire(e.key("bad"), alice)
		r.Metadata = bad
		_, err := s.Acquire(e.ctx(), r)
		e.failed("acquire with metadata of "+what, err, contract.CodeInvalid, "metadata")
		e.free(s, r.Key)
	}
}

func acquireQuotaLeases(e *Env) {
	a, b := e.pair()
	ask := func(name, owner string) *contract.AcquireRequest {
		r := e.newAcquire(e.key(name), owner)
		r.Limits.LeasesPerOwner = 2
		return r
	}
	over := func(r *contract.AcquireRequest) {
		e.Helper()
		res := e.acquire(b, r, contract.OutcomeQuotaExceeded)
		if res.Limit != "leases_per_owner" {
			e.Fatalf("limit: got %q, want leases_per_owner", res.Limit)
		}
		e.free(a, r.Key)
	}
	first := ask("one", alice)
	one := e.granted(a, first)
	two := e.granted(b, ask("two", alice))
	over(ask("three", alice))
	e.granted(a, ask("four", bob))
	// Also of a held key, and whether or not it would wait: it could not be
	// granted it.
	held := ask("four", alice)
	held.Wait = watchdog
	if res := e.acquire(b, held, contract.OutcomeQuotaExceeded); res.Limit != "leases_per_owner" {
		e.Fatalf("limit for a held key: got %q, want leases_per_owner", res.Limit)
	}
	if res := e.acquire(b, first, contract.OutcomeAcquired); !res.Replayed {
		e.Fatalf("a replay at the quota: got %s, want the grant replayed", describe(res))
	}

	e.end(a, one)
	three := e.granted(a, ask("three", alice))
	over(ask("five", alice))
	e.revoke(a, e.newRevoke(three), contract.OutcomeRevoked)
	e.granted(a, ask("five", alice))
	over(ask("six", alice))
	e.end(b, two)
	brief := ask("brief", alice)
	brief.TTL = e.short()
	l := e.granted(a, brief)
	over(ask("six", alice))
	e.expire(l)
	e.granted(a, ask("six", alice))
	over(ask("seven", alice))
}

func acquireQuotaRaced(e *Env) {
	a, b := e.pair()
	const limit = 4
	var answers [24]contract.Result
	var errs [24]error
	e.race(len(answers), func(i int) {
		r := e.newAcquire(e.key(fmt.Sprint("key-", i)), alice)
		r.Limits.LeasesPerOwner = limit
		answers[i], errs[i] = pick(i, a, b).Acquire(e.ctx(), r)
	})
	granted := 0
	for i, res := range answers {
		if errs[i] == nil && res.Outcome == contract.OutcomeAcquired {
			granted++
			continue
		}
		e.answered("acquire", res, errs[i], contract.OutcomeQuotaExceeded)
	}
	if granted < limit || e.harness.Guarantees.QuotaExact && granted > limit {
		e.Errorf("%d of %d racing acquires were granted, want %d", granted, len(answers), limit)
	}
	if listed := len(e.list(a, contract.ListRequest{Owner: alice})); listed != granted {
		e.Errorf("%d were granted and %d are listed", granted, listed)
	}
}
