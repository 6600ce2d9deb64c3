package raftkv

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"

	"leased/contract"
)

// TestWire_golden holds what nodes say to each other: nodes of two releases work
// together during an upgrade. LEASED_UPDATE_GOLDEN=1 writes the files.
func TestWire_golden(t *testing.T) {
	key := contract.Key{
		Tenant: "acme", Program: "recon", Target: contract.Target{Type: contract.TargetDomain, ID: "example.com"},
		Actor: "crawler", Workflow: "default", Operation: "scan",
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678900000, time.UTC)
	lease := contract.Lease{
		RecordVersion: 1, Namespace: "default", Key: key, KeyID: key.ID(), ID: contract.NewLeaseID(key.ID(), [16]byte{1}),
		Owner: "alice", Instance: "w-1", Token: 7, State: contract.StateActive, AcquiredAt: at, RenewedAt: at, ExpiresAt: at.Add(time.Minute),
		ExpiresIn: time.Minute, TTL: time.Minute, MaxLifetime: time.Hour, Renewals: 1, ExecutionID: "e", JobID: "j", TraceID: "t", RequestID: "r",
		Metadata: map[string]string{"a": "b"},
	}
	keep := contract.Retention{Idempotency: time.Minute, History: time.Hour, HistoryPerKey: 3}
	said := map[string]any{
		"acquire": &contract.AcquireRequest{
			Namespace: "default", RequestID: "r", Owner: "alice", Instance: "w-1", Key: key, TTL: time.Minute, MaxLifetime: time.Hour, Wait: time.Second,
			ExecutionID: "e", JobID: "j", TraceID: "t", Metadata: map[string]string{"a": "b"}, Retention: keep, Limits: contract.Limits{LeasesPerOwner: 1, WaitersPerKey: 2},
		},
		"renew-bulk": &contract.RenewBulkRequest{
			Namespace: "default", RequestID: "r", Owner: "alice", Instance: "w-1", Leases: []contract.RenewItem{{LeaseID: lease.ID, Token: 7}}, TraceID: "t", Retention: keep,
		},
		"revoke": &contract.RevokeRequest{
			Namespace: "default", RequestID: "r", Principal: "root", LeaseID: lease.ID, Mode: contract.RevokeForceRelease, Reason: "why", TraceID: "t", Retention: keep,
		},
		"list":         &contract.ListRequest{Namespace: "default", Target: key.Target, State: contract.StateExpired, ExpiresBefore: at, Limit: 3, Cursor: "c"},
		"leave":        []departure{{ID: "x", Gone: true}},
		"carry":        []carriedCall{{Verb: "acquire", TimeLeft: 1000, Body: []byte{1}}, {Verb: "get", Body: []byte{2}}},
		"answer-carry": carriedAnswer{Call: 1, Status: 200, Body: []byte{3}},
		"answer": &wireAnswer[contract.Result]{Answer: contract.Result{
			Outcome: contract.OutcomeConflict, Lease: &lease, Replayed: true, Queue: contract.Queue{Length: 2, Position: 1}, Limit: "l",
		}},
		"error": &wireAnswer[contract.Result]{Err: wireErrorOf(&contract.Error{
			Code: contract.CodeUnavailable, Field: "f", Detail: "d", RetryAfter: time.Second, Err: errors.New("cause"),
		})},
		"answer-bulk": &wireAnswer[bulkAnswer]{Answer: bulkAnswerOf(contract.RenewBulkResult{Items: []contract.RenewItemResult{
			{Result: contract.Result{Outcome: contract.OutcomeRenewed, Lease: &lease}}, {Err: contract.Errorf(contract.CodeInternal, nil, "d")},
		}})},
		"answer-health": &wireAnswer[healthAnswer]{Answer: healthAnswer{Health: contract.Health{Ready: true, Leader: "n1", ActiveLeases: 1, Waiters: 2}, Index: 3, Clock: 4}},
		"answer-watch":  &wireAnswer[watchAnswer]{Answer: watchAnswer{Index: 3, N: 4}},
	}
	w := newWire()
	for name, v := range said {
		t.Run(name, func(t *testing.T) {
			b, err := w.encode(v)
			if err != nil {
				t.Fatal(err)
			}
			got, err := cbor.Diagnose(b)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "wire", name+".txt")
			if os.Getenv("LEASED_UPDATE_GOLDEN") != "" {
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(got+"\n"), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
				t.Errorf("another release does not understand it (-want +got):\n%s", diff)
			}
		})
	}
}

// A request with something that this release does not know is refused: it may have
// been meant to change what is done. An answer may say more.
func TestWire_unknownField(t *testing.T) {
	w := newWire()
	b, err := w.encode(map[string]any{"Namespace": "default", "Owner": "alice", "Later": 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.requests.Unmarshal(b, new(contract.AcquireRequest)); err == nil {
		t.Error("a request with an unknown field was read")
	}
	got := new(contract.Lease)
	if err := w.answers.Unmarshal(b, got); err != nil || got.Owner != "alice" {
		t.Errorf("an answer with an unknown field: got %+v, error %v", got, err)
	}
}

func FuzzWire_read(f *testing.F) {
	w := newWire()
	b, err := w.encode(&contract.AcquireRequest{Namespace: "default", Metadata: map[string]string{"a": "b"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []any{new(contract.AcquireRequest), new(contract.RenewBulkRequest), new(contract.ListRequest), new([]departure), new([]carriedCall)} {
			if err := w.requests.Unmarshal(b, v); err == nil {
				if _, err := w.encode(v); err != nil {
					t.Errorf("what was read cannot be written: %v", err)
				}
			}
		}
		_ = w.answers.Unmarshal(b, new(wireAnswer[bulkAnswer])) // it must only not panic
	})
}
