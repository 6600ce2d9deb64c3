package history

import (
	"os"
	"path/filepath"
	"strings"
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

// TestTimeline: the page names keys, clients, faults and violations, and shows text as
// text.
func TestTimeline(t *testing.T) {
	var s script
	s.grant(0, 10, "<a>", 1)
	s.renew(100, 0, "")
	s.conflict(200, 210, "b", "<a>")
	s.h.Faults = []Fault{{Name: "somebody & paused", FromNS: 50 * millisecond, ToNS: 90 * millisecond}}
	bad := []Violation{{Rule: Exclusive, Key: "k", Says: "two held it", AtNS: 100 * millisecond}}
	var page strings.Builder
	if err := s.h.Timeline(&page, "a run", bad); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Key k", "somebody &amp; paused", "exclusive: key k: two held it", "i-&lt;a&gt;", "no answer", `class="unknown"`, `class="lease"`} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not have %q:\n%s", want, page.String())
		}
	}
}
