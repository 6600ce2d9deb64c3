package api_test

import (
	stdjson "encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"leased/contract"
	"leased/gateway/api"
)

// documented is the table of the API's documentation: which codes have which
// status.
func documented() map[int][]api.Code {
	return map[int][]api.Code{
		400: {api.CodeInvalid},
		401: {api.CodeUnauthenticated},
		403: {api.CodeDenied},
		404: {api.CodeNotFound, api.CodeUnknownNamespace},
		405: {api.CodeMethodNotAllowed},
		409: {api.CodeConflict, api.CodeNotOwner, api.CodeStaleToken},
		410: {api.CodeExpired, api.CodeReleased, api.CodeRevoked},
		413: {api.CodeTooLarge},
		415: {api.CodeUnsupportedMediaType},
		422: {api.CodeRequestIDReused},
		429: {api.CodeQuotaExceeded, api.CodeRateLimited},
		503: {api.CodeUnavailable, api.CodeClosed},
		504: {api.CodeTimeout, api.CodeOutcomeUnknown},
		500: {api.CodeInternal},
	}
}

func TestCode_Status(t *testing.T) {
	got := map[int][]api.Code{}
	for _, c := range api.Codes() {
		got[c.Status()] = append(got[c.Status()], c)
		if c.Title() == "" || !strings.HasSuffix(c.Type(), string(c)) {
			t.Errorf("%s: got title %q, type %q", c, c.Title(), c.Type())
		}
	}
	if diff := cmp.Diff(documented(), got); diff != "" {
		t.Errorf("codes by status (-want +got):\n%s", diff)
	}
	if c := api.Code("nonsense"); c.Status() != 0 || c.Outcome() != 0 || c.ErrorCode() != 0 || c.Retryable() {
		t.Errorf("an unknown code means something: %d, %v, %v", c.Status(), c.Outcome(), c.ErrorCode())
	}
}

// TestCode_outcomes: each outcome and each error has one code, and the code
// leads back to it.
func TestCode_outcomes(t *testing.T) {
	for o := contract.OutcomeAcquired; o <= contract.OutcomeQuotaExceeded; o++ {
		code := api.CodeOfOutcome(o)
		switch {
		case o.OK():
			if code != "" {
				t.Errorf("%v: got code %q for a success", o, code)
			}
			if back, ok := api.ParseOutcome(o.String()); !ok || back != o {
				t.Errorf("%v: parsed as %v, %v", o, back, ok)
			}
			want := http.StatusOK
			if o == contract.OutcomeAcquired {
				want = http.StatusCreated
			}
			if got := api.StatusOfOutcome(o); got != want {
				t.Errorf("%v: got status %d, want %d", o, got, want)
			}
		case code == api.CodeInternal || code.Outcome() != o || api.StatusOfOutcome(o) != code.Status():
			t.Errorf("%v: got code %q, back %v, status %d", o, code, code.Outcome(), api.StatusOfOutcome(o))
		}
	}
	for c := contract.CodeInvalid; c <= contract.CodeInternal; c++ {
		if code := api.CodeOfError(c); string(code) != c.String() || code.ErrorCode() != c {
			t.Errorf("%v: got code %q, back %v", c, code, code.ErrorCode())
		}
	}
	if got := api.CodeOfOutcome(0); got != api.CodeInternal {
		t.Errorf("outcome 0: got %q, want internal", got)
	}
	if got := api.CodeOfError(0); got != api.CodeInternal {
		t.Errorf("error 0: got %q, want internal", got)
	}
	if _, ok := api.ParseOutcome("conflict"); ok {
		t.Error("a refusal was parsed as a success")
	}
}

// TestCode_retryable: what may be repeated unchanged. A client that repeats
// anything else spins.
func TestCode_retryable(t *testing.T) {
	want := []api.Code{
		api.CodeConflict, api.CodeQuotaExceeded, api.CodeRateLimited, api.CodeUnavailable, api.CodeClosed, api.CodeTimeout, api.CodeOutcomeUnknown,
	}
	var got []api.Code
	for _, c := range api.Codes() {
		if c.Retryable() {
			got = append(got, c)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("retryable (-want +got):\n%s", diff)
	}
}

// TestCodeOfStatus: a proxy's error never reads as "certainly not applied", nor as
// the store's word.
func TestCodeOfStatus(t *testing.T) {
	for status := range 600 {
		want := api.CodeInternal
		switch {
		case status == 429:
			want = api.CodeRateLimited
		case status >= 500:
			want = api.CodeOutcomeUnknown
		}
		if got := api.CodeOfStatus(status); got != want {
			t.Errorf("%d: got %q, want %q", status, got, want)
		}
	}
}

func TestNewProblem_unknownCode(t *testing.T) {
	if p := api.NewProblem("nonsense", "r-1", "d"); p.Code != api.CodeInternal || p.Status != 500 {
		t.Errorf("got %+v, want internal", p)
	}
}

func TestTime(t *testing.T) {
	zone := time.FixedZone("", 3600)
	for _, test := range []struct {
		t    time.Time
		want string
	}{
		{time.Time{}, `null`},
		{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), `"2026-01-01T00:00:00.000Z"`},
		{time.Date(2026, 1, 1, 1, 0, 0, 0, zone), `"2026-01-01T00:00:00.000Z"`},
		{time.Date(2026, 1, 1, 0, 0, 0, 999999999, time.UTC), `"2026-01-01T00:00:00.999Z"`},
	} {
		v := api.NewTime(test.t)
		for name, marshal := range map[string]func(any) ([]byte, error){
			"v2":            func(v any) ([]byte, error) { return json.Marshal(v) },
			"encoding/json": stdjson.Marshal,
		} {
			if b, err := marshal(v); err != nil || string(b) != test.want {
				t.Errorf("%s of %v: got %s, %v; want %s", name, test.t, b, err, test.want)
			}
		}
		for name, unmarshal := range map[string]func([]byte, any) error{
			"v2":            func(b []byte, v any) error { return json.Unmarshal(b, v) },
			"encoding/json": stdjson.Unmarshal,
		} {
			got := api.NewTime(time.Unix(1, 0))
			if err := unmarshal([]byte(test.want), &got); err != nil || !got.Equal(test.t.Truncate(time.Millisecond)) {
				t.Errorf("%s of %s: got %v, %v", name, test.want, got, err)
			}
			if err := unmarshal([]byte(`"yesterday"`), &got); err == nil {
				t.Errorf("%s took yesterday for a time", name)
			}
		}
	}
}

// full returns a lease with every field set, none of them twice the same.
func full(t *testing.T) contract.Lease {
	t.Helper()
	key, err := contract.Key{Tenant: "acme", Target: contract.Target{Type: contract.TargetIP, ID: "192.0.2.1"}, Actor: "a"}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	l := contract.Lease{
		RecordVersion: 1, Namespace: "default", Key: key, KeyID: key.ID(), ID: contract.NewLeaseID(key.ID(), [16]byte{1}),
		Owner: "o", Instance: "i", Token: contract.MaxToken, State: contract.StateRevoked,
		AcquiredAt: at(1), RenewedAt: at(2), ExpiresAt: at(3), ExpiresIn: time.Second, TTL: 2 * time.Second,
		MaxLifetime: 3 * time.Second, Renewals: 4, ExecutionID: "e", JobID: "j", TraceID: "t", RequestID: "r",
		Metadata: map[string]string{"a": "b"}, EndedAt: at(4), EndedBy: "x", Reason: "y",
	}
	for i := range reflect.TypeOf(l).NumField() {
		if reflect.ValueOf(l).Field(i).IsZero() {
			t.Fatalf("the test sets no %s", reflect.TypeOf(l).Field(i).Name)
		}
	}
	return l
}

// TestLease_roundTrip: nothing but the request id is lost on the wire.
func TestLease_roundTrip(t *testing.T) {
	want := full(t)
	b, err := json.Marshal(api.NewLease(&want))
	if err != nil {
		t.Fatal(err)
	}
	for name, unmarshal := range map[string]func([]byte, any) error{
		"v2":            func(b []byte, v any) error { return json.Unmarshal(b, v) },
		"encoding/json": stdjson.Unmarshal,
	} {
		var wire api.Lease
		if err := unmarshal(b, &wire); err != nil {
			t.Fatal(err)
		}
		got, err := wire.Contract()
		if err != nil {
			t.Fatal(err)
		}
		got.RequestID = want.RequestID
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLease_Contract_refuses(t *testing.T) {
	l := full(t)
	for field, change := range map[string]func(*api.Lease){
		"key_id":   func(l *api.Lease) { l.KeyID = "x" },
		"lease_id": func(l *api.Lease) { l.LeaseID = "" },
		"state":    func(l *api.Lease) { l.State = "free" },
		"token":    func(l *api.Lease) { l.Token = 1 << 53 },
	} {
		wire := api.NewLease(&l)
		change(wire)
		_, err := wire.Contract()
		if e, ok := errors.AsType[*contract.Error](err); !ok || e.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	wire := api.NewLease(&l)
	wire.ExpiresInMS = 1 << 62
	if got, err := wire.Contract(); err != nil || got.ExpiresIn != contract.MaxDuration {
		t.Errorf("an absurd duration: got %v, %v; want it cut, not wrapped round", got.ExpiresIn, err)
	}
}

// TestLease_rounding: durations are cut on their way out, so that nobody trusts
// a lease for longer than it lasts; promises are rounded the other way.
func TestLease_rounding(t *testing.T) {
	l := full(t)
	l.ExpiresIn, l.TTL = 1999*time.Microsecond, 2999*time.Microsecond
	if got := api.NewLease(&l); got.ExpiresInMS != 1 || got.TTLMS != 2 {
		t.Errorf("got expires_in_ms %d, ttl_ms %d; want 1, 2", got.ExpiresInMS, got.TTLMS)
	}
	if got := api.NewHolder(&l).ExpiresInMS; got != 1 {
		t.Errorf("holder: got expires_in_ms %d, want 1", got)
	}
	g := api.NewGuarantees(&contract.Guarantees{Slack: time.Microsecond, Granularity: time.Millisecond})
	if g.SlackMS != 1 || g.GranularityMS != 1 {
		t.Errorf("got slack_ms %d, granularity_ms %d; want 1, 1", g.SlackMS, g.GranularityMS)
	}
}

// TestMetadata: what a request's metadata may be. A null value would be stored
// as an empty one.
func TestMetadata(t *testing.T) {
	for in, want := range map[string]api.Metadata{
		`null`:                nil,
		`{}`:                  {},
		`{"a":"b"}`:           {"a": "b"},
		`{"a":"b","c":""}`:    {"a": "b", "c": ""},
		`{"\u0061":"\u00e9"}`: {"a": "é"},
	} {
		got := api.Metadata{"old": "value"}
		if err := json.Unmarshal([]byte(in), &got); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
	for _, in := range []string{`{"a":null}`, `{"a":1}`, `{"a":{}}`, `{"a":"b","a":"c"}`, `["a"]`, `"a"`, `1`, `{"a"}`, `{"a":"b"`, `{"a":"b",}`, ``} {
		var got api.Metadata
		if err := json.Unmarshal([]byte(in), &got); err == nil {
			t.Errorf("%s: taken as %v", in, got)
		}
	}
}

// FuzzMetadata: the decoder takes what a map of strings takes, but for nulls.
func FuzzMetadata(f *testing.F) {
	for _, s := range []string{`null`, `{}`, `{"a":"b"}`, `{"a":null}`, `{"a":"b","a":"c"}`, `[`, `{"a":"\ud83d\ude00"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var got api.Metadata
		err := json.Unmarshal([]byte(in), &got)
		var want map[string]*string
		wantErr := json.Unmarshal([]byte(in), &want)
		for _, v := range want {
			if v == nil {
				wantErr = errors.New("a null value")
			}
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("got %v, want %v", err, wantErr)
		}
		if err == nil && len(got) != len(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// FuzzLease: what decodes as a lease goes to package contract and back, or is
// refused.
func FuzzLease(f *testing.F) {
	f.Add(`{"record_version":1,"key_id":"AQAAAAAAAAAAAAAAAAAAAA","lease_id":"AQAAAAAAAAAAAAAAAAAAAAEAAAAAAAAAAAAAAAAAAAA","token":7,"state":"active","ended_at":null,"acquired_at":"2026-01-01T00:00:00.000Z"}`)
	f.Add(`{"expires_in_ms":-9223372036854775808,"acquired_at":"0001-01-01T00:00:00Z"}`)
	f.Fuzz(func(t *testing.T, in string) {
		var wire api.Lease
		if json.Unmarshal([]byte(in), &wire) != nil {
			return
		}
		l, err := wire.Contract()
		if err != nil {
			return
		}
		again, err := api.NewLease(&l).Contract()
		if err != nil {
			t.Fatal(err)
		}
		if l.Metadata == nil {
			l.Metadata = map[string]string{}
		}
		if diff := cmp.Diff(l, again); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}

// FuzzAppendLeaseReply holds the hand-written encoder to the type, byte for
// byte.
func FuzzAppendLeaseReply(f *testing.F) {
	f.Add("acme", "worker-7", "purpose", "nightly", uint64(42), int64(1767225600123456789), int64(30000000000), true)
	f.Add("<&>", "\u2028\"\\\x01", "", "é\xff", uint64(1<<53-1), int64(0), int64(-1), false)
	f.Fuzz(func(t *testing.T, tenant, instance, name, value string, token uint64, at, d int64, replayed bool) {
		l := contract.Lease{
			RecordVersion: 1, Namespace: tenant, Owner: value, Instance: instance, Token: contract.Token(token),
			Key:   contract.Key{Tenant: tenant, Program: name, Target: contract.Target{Type: "name", ID: value}, Actor: instance},
			State: contract.StateActive + contract.State(token%4),
			ID:    contract.LeaseID{byte(token), byte(at)}, KeyID: contract.KeyID{byte(token), byte(d)},
			AcquiredAt: time.Unix(0, at), RenewedAt: time.Unix(at%1e12, d), ExpiresIn: time.Duration(d), TTL: time.Duration(at),
			MaxLifetime: time.Duration(token), Renewals: token, ExecutionID: name, JobID: value, TraceID: instance,
			Metadata: map[string]string{name: value, tenant: instance}, EndedBy: name, Reason: value,
		}
		if token%3 == 0 {
			l.Metadata = nil
		}
		want, wantErr := json.Marshal(&api.LeaseReply{Outcome: "renewed", Lease: api.NewLease(&l), Replayed: replayed}, json.Deterministic(true))
		got, err := api.AppendLeaseReply([]byte("before"), contract.OutcomeRenewed, &l, replayed)
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("got error %v, want %v", err, wantErr)
		}
		if err == nil && string(got) != "before"+string(want) {
			t.Errorf("got  %s\nwant before%s", got, want)
		}
	})
}
