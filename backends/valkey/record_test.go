package valkey

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/contract"
)

// sample returns a request with something in every part, and its record as the
// scripts would write it.
func sample(tb testing.TB, state contract.State, tail string) (*contract.AcquireRequest, string) {
	tb.Helper()
	key, err := contract.Key{
		Tenant: "acme", Program: "recon", Target: contract.Target{Type: contract.TargetDomain, ID: "example.com"},
		Actor: "crawler", Workflow: "nightly", Operation: "scan",
	}.Normalize()
	if err != nil {
		tb.Fatal(err)
	}
	r := &contract.AcquireRequest{
		Namespace: "n", RequestID: "r-1", Owner: "alice", Instance: "alice-{1}", Key: key, TTL: time.Second, MaxLifetime: time.Hour,
		ExecutionID: "e-1", JobID: "j-1", TraceID: "t-1", Metadata: map[string]string{"a": "1", "": "\x00", "b": ""},
	}
	b := head(key.ID(), [16]byte{1, 2, 3}, holderTag(r.Owner, r.Instance))
	b[atState] = byte(state)
	for _, n := range []uint64{uint64(contract.MaxToken), 1_000_000, 2_000_000, 3_000_000, 1_000_000} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.BigEndian.AppendUint32(b, 7)
	b = binary.BigEndian.AppendUint64(b, 2_500_000)
	b = binary.BigEndian.AppendUint64(b, 60_000_000)
	b = binary.BigEndian.AppendUint32(b, 64)
	b = binary.BigEndian.AppendUint64(b, 600_000_000)
	f := fixed(r, r.Scope(), grantable(r.MaxLifetime))
	b = append(b, f[:len(f)-4]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(tail)))
	b = append(b, tail...)
	for _, n := range []uint64{5, 6, 7, 8} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, strings.Repeat("p", 16)...)
	b = binary.BigEndian.AppendUint32(b, 3)
	return r, string(b)
}

func TestParseRecord(t *testing.T) {
	t.Parallel()
	by := cause{"root", "r-2", "t-2", "why"}
	r, rec := sample(t, contract.StateRevoked, by.encode())
	v, err := parseRecord("n", rec, false)
	if err != nil {
		t.Fatal(err)
	}
	want := contract.Lease{
		RecordVersion: contract.RecordVersion, Namespace: "n", Key: r.Key, KeyID: r.Key.ID(),
		ID: contract.NewLeaseID(r.Key.ID(), [16]byte{1, 2, 3}), Owner: r.Owner, Instance: r.Instance, Token: contract.MaxToken,
		State: contract.StateRevoked, AcquiredAt: time.Unix(1, 0).UTC(), RenewedAt: time.Unix(2, 0).UTC(), ExpiresAt: time.Unix(3, 0).UTC(),
		TTL: time.Second, MaxLifetime: time.Hour, Renewals: 7, ExecutionID: "e-1", JobID: "j-1", TraceID: "t-1", RequestID: "r-1",
		Metadata: r.Metadata, EndedAt: time.UnixMicro(2_500_000).UTC(), EndedBy: "root", Reason: "why",
	}
	if diff := cmp.Diff(*v.view(9_000_000), want); diff != "" {
		t.Errorf("lease: (-got +want)\n%s", diff)
	}
	if v.acquired != (place{5, 6}) || v.ended != (place{7, 8}) || v.end != by {
		t.Errorf("events at %v and %v, ended by %+v", v.acquired, v.ended, v.end)
	}
	if len(rec) < minRecord || rec[atOwner:atOwner+ownerTagLen] != textTag('o', "alice", ownerTagLen) {
		t.Errorf("the owner's tag does not stand where scripts look for it")
	}
}

func TestParseRecord_expired(t *testing.T) {
	t.Parallel()
	_, rec := sample(t, contract.StateExpired, string(binary.BigEndian.AppendUint64(nil, 2_600_000)))
	v, err := parseRecord("n", rec, false)
	if err != nil || v.recorded != 2_600_000 || !v.lease.EndedAt.Equal(time.UnixMicro(2_500_000)) || v.lease.EndedBy != "" {
		t.Errorf("got recorded %d, ended at %v by %q, error %v", v.recorded, v.lease.EndedAt, v.lease.EndedBy, err)
	}
}

func TestParseRecord_corrupt(t *testing.T) {
	t.Parallel()
	_, rec := sample(t, contract.StateActive, "")
	if _, err := parseRecord("n", rec, false); err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]string{
		"nothing":       "",
		"cut":           rec[:len(rec)-1],
		"longer":        rec + "x",
		"half":          rec[:atText+10],
		"version":       "\x02" + rec[1:],
		"state":         rec[:atState] + "\x09" + rec[atState+1:],
		"free":          rec[:atState] + "\x01" + rec[atState+1:],
		"another key":   rec[:atKey] + strings.Repeat("x", 16) + rec[atNonce:],
		"ended by none": rec[:atState] + "\x03" + rec[atState+1:],
	} {
		if _, err := parseRecord("n", bad, false); err == nil {
			t.Errorf("%s: it was read", what)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for _, ns := range []string{"n", "{n}", "}{", "a{b}c", ""} {
		b := base("p:", ns)
		if strings.Count(b, "{") != 1 || strings.Count(b, "}") != 1 || !strings.HasSuffix(b, "}") {
			t.Errorf("namespace %q moves the hash tag: %q", ns, b)
		}
	}
	if textTag('o', "a", 8) == textTag('i', "a", 8) {
		t.Errorf("tags of different kinds are the same")
	}
	if holderTag("a", "bc") == holderTag("ab", "c") {
		t.Errorf("holders run into each other")
	}
}

func TestParsePlace(t *testing.T) {
	t.Parallel()
	if p, ok := parsePlace("17-4"); !ok || p != (place{17, 4}) {
		t.Errorf("got %v, %v", p, ok)
	}
	for _, bad := range []string{"", "-", "1", "1-", "-1", "01-1", "1-01", "1-1-1", "+1-1", "1- 1", "9007199254740992-1", "1-x"} {
		if p, ok := parsePlace(bad); ok {
			t.Errorf("%q was read as %v", bad, p)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	_, active := sample(f, contract.StateActive, "")
	_, ended := sample(f, contract.StateReleased, cause{"a", "b", "c", "d"}.encode())
	f.Add(active, false)
	f.Add(ended, true)
	f.Fuzz(func(t *testing.T, rec string, body bool) {
		v, err := parseRecord("n", rec, body)
		if err == nil && v.lease.KeyID != v.lease.Key.ID() {
			t.Errorf("a record of another key was read")
		}
	})
}

func FuzzParseCause(f *testing.F) {
	f.Add(cause{"a", "b", "c", "d"}.encode())
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCause(s)
		if err != nil {
			return
		}
		if again, err := parseCause(c.encode()); err != nil || again != c {
			t.Errorf("%+v became %+v, error %v", c, again, err)
		}
	})
}

func FuzzEndedCursor(f *testing.F) {
	f.Add("e17.AAAA")
	f.Fuzz(func(t *testing.T, s string) {
		if _, member, ok := parseEndedCursor(s); ok && len(member) != 38 {
			t.Errorf("%q was read as %q", s, member)
		}
	})
}
