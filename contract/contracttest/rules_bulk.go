package contracttest

import (
	"fmt"

	"leased/contract"
)

func bulkRules() []Rule {
	return []Rule{
		{ID: "bulk-renews-each", Func: bulkRenewsEach,
			Sentence: "A bulk renewal answers for every lease in the order in which they were named, each as a renewal of its own would, and one that is refused disturbs no other."},
		{ID: "bulk-replayed-each", Func: bulkReplayedEach,
			Sentence: "Repeating a bulk renewal, or one of its renewals alone, under the same request id replays what was renewed and tries again what was refused."},
		{ID: "bulk-of-one-key", Func: bulkOfOneKey,
			Sentence: "Leases of one key in one bulk renewal share its request id: those before the one that is renewed are answered as by themselves, those after it, and all others when it is repeated, are told that the id is taken."},
		{ID: "bulk-bounds", Func: bulkBounds,
			Sentence: "A bulk of none, of more than 1,000, or that names a lease twice is invalid and renews nothing; one of 1,000 is served."},
		{ID: "bulk-invalid", Func: bulkInvalid,
			Sentence: "A bulk renewal that breaks a bound is invalid, names the field and renews nothing."},
	}
}

// bulk sends r, wants each outcome in order and returns the answers.
func (e *Env) bulk(s contract.Store, r *contract.RenewBulkRequest, want ...contract.Outcome) []contract.Result {
	e.Helper()
	got, err := s.RenewBulk(e.ctx(), r)
	if err != nil {
		e.Fatalf("bulk renew: got error %v", err)
	}
	if len(got.Items) != len(want) {
		e.Fatalf("bulk renew: got %d answers, want %d", len(got.Items), len(want))
	}
	results := make([]contract.Result, len(want))
	for i, item := range got.Items {
		results[i] = e.answered(fmt.Sprintf("bulk renew, lease %d", i), item.Result, item.Err, want[i])
	}
	return results
}

func bulkRenewsEach(e *Env) {
	a, b := e.pair()
	endings := e.eachEnding(a)
	var held [4]contract.Lease
	for i := range held {
		held[i] = e.grant(a, e.key(fmt.Sprint("held-", i)), alice)
	}
	theirs := e.grant(a, e.key("theirs"), bob)
	otherInstance := e.newAcquire(e.key("other instance"), alice)
	otherInstance.Instance = "alice-2"
	elsewhere := e.granted(a, otherInstance)
	wrongToken := held[1]
	wrongToken.Token++
	unknown := held[2]
	unknown.ID = contract.NewLeaseID(e.key("never leased").ID(), [16]byte{1})

	const renewed, notOwner, stale, notFound = contract.OutcomeRenewed, contract.OutcomeNotOwner, contract.OutcomeStaleToken, contract.OutcomeNotFound
	sent := e.mark()
	got := e.bulk(b, e.newBulk(held[3], endings[0].lease, held[0], theirs, wrongToken, endings[1].lease, elsewhere, unknown, endings[2].lease, held[2]),
		renewed, endings[0].answer, renewed, notOwner, stale, endings[1].answer, notOwner, notFound, endings[2].answer, renewed)
	for i, l := range map[int]contract.Lease{0: held[3], 2: held[0], 9: held[2]} {
		want := l
		now := *got[i].Lease
		want.Renewals, want.RenewedAt, want.ExpiresAt = 1, now.RenewedAt, now.ExpiresAt
		e.sameLease("a lease renewed in bulk", now, want)
		e.leftAfter("a lease renewed in bulk", now.ExpiresIn, l.TTL, 0, e.atMost(sent))
		e.shows(a, now)
	}
	for _, l := range []contract.Lease{theirs, held[1], elsewhere} {
		e.shows(a, l)
	}
	for i, o := range endings {
		e.sameLease("the lease as it ended", *got[[]int{1, 5, 8}[i]].Lease, o.lease)
		e.shows(a, o.lease)
	}
}

func bulkReplayedEach(e *Env) {
	a, b := e.pair()
	first, second := e.grant(a, e.key("first"), alice), e.grant(a, e.key("second"), alice)
	wrong := second
	wrong.Token++
	r := e.newBulk(first, wrong)
	const renewed, stale = contract.OutcomeRenewed, contract.OutcomeStaleToken
	before := e.bulk(a, r, renewed, stale)

	r.Leases[1].Token = second.Token // the refusal was not stored, so this is no reuse
	after := e.bulk(b, r, renewed, renewed)
	e.sameLease("the replayed renewal", *after[0].Lease, *before[0].Lease)
	if !after[0].Replayed || after[1].Replayed {
		e.Errorf("replayed: got %v and %v, want the first only", after[0].Replayed, after[1].Replayed)
	}
	single := e.newRenew(second)
	single.RequestID = r.RequestID
	res := e.renew(a, single, renewed)
	e.sameLease("the replayed renewal", *res.Lease, *after[1].Lease)
	if !res.Replayed {
		e.Errorf("a renewal with the bulk's request id is not a replay")
	}
	e.shows(a, *after[1].Lease)

	// And what was renewed alone is replayed in bulk.
	third := e.grant(a, e.key("third"), alice)
	alone := e.newRenew(third)
	told := e.renew(a, alone, renewed)
	again := e.newBulk(third)
	again.RequestID = alone.RequestID
	if got := e.bulk(b, again, renewed); !got[0].Replayed || leaseDiff(*got[0].Lease, *told.Lease) != "" {
		e.Errorf("a bulk with a renewal's request id: got %s, want its answer replayed", describe(got[0]))
	}
	e.shows(b, *told.Lease)
}

func bulkOfOneKey(e *Env) {
	a, b := e.pair()
	key := e.key("held over and over")
	var ended [4]contract.Lease
	for i := range ended {
		ended[i] = e.end(a, e.grant(a, key, alice))
	}
	held := e.grant(a, key, alice)
	unknown := [2]contract.Lease{held, held}
	for i := range unknown {
		unknown[i].ID = contract.NewLeaseID(key.ID(), [16]byte{byte(i)})
	}
	other := e.grant(a, e.key("other"), alice)

	const released, notFound, renewed, reused = contract.OutcomeEndedReleased, contract.OutcomeNotFound, contract.OutcomeRenewed, contract.OutcomeRequestIDReused
	r := e.newBulk(ended[0], unknown[0], ended[1], held, ended[2], unknown[1], ended[3], other)
	first := e.bulk(b, r, released, notFound, released, renewed, reused, reused, reused, renewed)
	again := e.bulk(a, r, reused, reused, reused, renewed, reused, reused, reused, renewed)
	for _, i := range []int{3, 7} {
		e.sameLease("the replayed renewal", *again[i].Lease, *first[i].Lease)
		if first[i].Replayed || !again[i].Replayed {
			e.Errorf("lease %d: replayed is %v, then %v, want false, then true", i, first[i].Replayed, again[i].Replayed)
		}
	}
	e.shows(a, *first[3].Lease)
}

func bulkBounds(e *Env) {
	s := e.open()
	l, other := e.grant(s, e.key("held"), alice), e.grant(s, e.key("other"), alice)
	full := e.newBulk(l)
	for i := range contract.MaxBulk - 1 {
		id := contract.NewLeaseID(e.key("never leased").ID(), [16]byte{1, byte(i >> 8), byte(i)})
		full.Leases = append(full.Leases, contract.RenewItem{LeaseID: id, Token: 1})
	}
	tooMany := e.newBulk()
	tooMany.Leases = append(append(tooMany.Leases, full.Leases...), contract.RenewItem{LeaseID: other.ID, Token: other.Token})
	twice := e.newBulk(other, l, other)
	for _, c := range []struct {
		what, field string
		r           *contract.RenewBulkRequest
	}{
		{"nothing", "leases", e.newBulk()},
		{"1,001 leases", "leases", tooMany},
		{"a lease twice", "leases[2].lease_id", twice},
	} {
		_, err := s.RenewBulk(e.ctx(), c.r)
		e.failed("bulk renew of "+c.what, err, contract.CodeInvalid, c.field)
		e.shows(s, l)
		e.shows(s, other)
	}

	got, err := s.RenewBulk(e.ctx(), full)
	if err != nil || len(got.Items) != contract.MaxBulk {
		e.Fatalf("bulk renew of 1,000: got %d answers, error %v", len(got.Items), err)
	}
	for i, item := range got.Items {
		want := contract.OutcomeNotFound
		if i == 0 {
			want = contract.OutcomeRenewed
		}
		e.answered(fmt.Sprintf("bulk renew of 1,000, lease %d", i), item.Result, item.Err, want)
	}
	e.shows(s, *got.Items[0].Lease)
}

func bulkInvalid(e *Env) {
	type R = contract.RenewBulkRequest
	s := e.open()
	first, second := e.grant(s, e.key("first"), alice), e.grant(s, e.key("second"), alice)
	cases := identityCases("namespace", contract.MaxNamespace, true, func(r *R, v string) { r.Namespace = v })
	cases = append(cases, requestIDCases(func(r *R, v string) { r.RequestID = v })...)
	cases = append(cases, identityCases("owner", contract.MaxText, true, func(r *R, v string) { r.Owner = v })...)
	cases = append(cases, identityCases("instance", contract.MaxText, true, func(r *R, v string) { r.Instance = v })...)
	cases = append(cases, identityCases("trace_id", contract.MaxText, false, func(r *R, v string) { r.TraceID = v })...)
	cases = append(cases, retentionCases(func(r *R) *contract.Retention { return &r.Retention })...)
	set := func(r *R, item contract.RenewItem) {
		r.Leases = []contract.RenewItem{r.Leases[0], item}
	}
	cases = append(cases, tokenCases("leases[1].token", func(r *R, t contract.Token) {
		set(r, contract.RenewItem{LeaseID: second.ID, Token: t})
	})...)
	cases = append(cases, invalidCase[R]{"missing", "leases[1].lease_id", func(r *R) {
		set(r, contract.RenewItem{Token: second.Token})
	}})
	refusesEach(e, "bulk renew", *e.newBulk(first, second), cases, func(r *R) error {
		_, err := s.RenewBulk(e.ctx(), r)
		return err
	})
	e.shows(s, first)
	e.shows(s, second)
}
