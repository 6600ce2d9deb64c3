package history

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRecorder: what a process had called when it was killed is in its file.
func TestRecorder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ops")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRecorder(f)
	before := Now()
	done := Op{ID: "a-1", Client: "a", Verb: Acquire, Key: "k", CalledNS: before}
	lost := Op{ID: "a-2", Client: "a", Verb: Check, Key: "k", CalledNS: before + 1}
	for _, o := range []*Op{&done, &lost} {
		if err := r.Record(o); err != nil {
			t.Fatal(err)
		}
	}
	done.ReturnedNS, done.Answer = Now()+1, acquired("a", 1)
	if err := r.Record(&done); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"id":"a-3","cl`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Op{done, lost}, got); diff != "" {
		t.Errorf("read (-recorded +read):\n%s", diff)
	}
	if err := Save(path, got); err != nil {
		t.Fatal(err)
	}
	again, err := Read(path)
	if diff := cmp.Diff(got, again); diff != "" || err != nil {
		t.Errorf("read what was saved: %v\n%s", err, diff)
	}
}
