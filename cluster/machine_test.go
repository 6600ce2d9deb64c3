package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

func entry(index uint64, typ raft.LogType, data string) *raft.Log {
	return &raft.Log{Index: index, Type: typ, Data: []byte(data)}
}

// TestMachine_ApplyBatch: answers stay with their entries when entries that are
// no commands are left out.
func TestMachine_ApplyBatch(t *testing.T) {
	for name, fsm := range map[string]interface {
		raft.FSM
		content() []string
	}{"single entries": new(ledger), "batches": new(batching)} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(fsm)
			got := m.ApplyBatch([]*raft.Log{
				entry(3, raft.LogConfiguration, "c"),
				entry(4, raft.LogCommand, "a"),
				entry(5, raft.LogConfiguration, "c"),
				entry(6, raft.LogCommand, "b"),
				entry(7, raft.LogConfiguration, "c"),
			})
			want := []any{nil, uint64(4), nil, uint64(6), nil}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			if applied, command := m.applied.Load(), m.command.Load(); applied != 7 || command != 6 {
				t.Errorf("applied = %d, last command = %d, want 7, 6", applied, command)
			}
			if diff := cmp.Diff([]any{nil}, m.ApplyBatch([]*raft.Log{entry(8, raft.LogConfiguration, "c")})); diff != "" {
				t.Errorf("answers to a configuration alone (-want +got):\n%s", diff)
			}
			if got := m.ApplyBatch(nil); len(got) != 0 {
				t.Errorf("answers to nothing = %v", got)
			}
			if got := m.Apply(entry(9, raft.LogCommand, "c")); got != uint64(9) {
				t.Errorf("answer to a single entry = %v, want 9", got)
			}
			if diff := cmp.Diff([]string{"a", "b", "c"}, fsm.content()); diff != "" {
				t.Errorf("applied (-want +got):\n%s", diff)
			}
			if applied, command := m.applied.Load(), m.command.Load(); applied != 9 || command != 9 {
				t.Errorf("applied = %d, last command = %d, want 9, 9", applied, command)
			}
		})
	}
}

// wrapped is what raft puts around a snapshot's reader.
type wrapped struct{ io.ReadCloser }

func (w wrapped) WrappedReadCloser() io.ReadCloser { return w.ReadCloser }

func TestMachine_Restore(t *testing.T) {
	reader := func(content string) io.ReadCloser {
		return wrapped{&snapshotReader{io.NopCloser(bytes.NewBufferString(content)), 12}}
	}
	m := newMachine(new(ledger))
	if err := m.Restore(reader(`not JSON`)); err == nil {
		t.Error("Restore of a damaged snapshot succeeded")
	}
	if applied, command := m.applied.Load(), m.command.Load(); applied != 0 || command != 0 {
		t.Errorf("after a failed Restore: applied = %d, last command = %d, want 0, 0", applied, command)
	}
	if err := m.Restore(reader(`["a"]`)); err != nil {
		t.Fatal(err)
	}
	if applied, command := m.applied.Load(), m.command.Load(); applied != 12 || command != 12 {
		t.Errorf("after Restore: applied = %d, last command = %d, want 12, 12", applied, command)
	}
}

func TestMachine_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(new(ledger))
		m.advance(10)
		m.advance(9) // never backwards
		if err := m.wait(t.Context(), 10); err != nil {
			t.Errorf("wait for what is there = %v", err)
		}
		returned := make(chan uint64, 10)
		for _, index := range []uint64{11, 12, 13} {
			go func() {
				if err := m.wait(t.Context(), index); err != nil {
					t.Errorf("wait for %d = %v", index, err)
				}
				returned <- index
			}()
		}
		synctest.Wait()
		if len(returned) != 0 {
			t.Fatalf("%d waits returned at 10", len(returned))
		}
		m.advance(11)
		synctest.Wait()
		if got := <-returned; got != 11 || len(returned) != 0 {
			t.Errorf("after 11: wait for %d and %d others returned, want 11 alone", got, len(returned))
		}
		m.advance(20)
		synctest.Wait()
		if got := len(returned); got != 2 {
			t.Errorf("after 20: %d waits returned, want 2", got)
		}

		why := errors.New("reader left")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		if err := m.wait(ctx, 21); !errors.Is(err, why) {
			t.Errorf("wait when nothing comes = %v, want %v", err, why)
		}
		if got := m.waiting.Load(); got != 0 {
			t.Errorf("%d still counted as waiting", got)
		}
	})
}
