package runner_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/client"
	"leased/client/runner"
	"leased/gateway/api"
)

func key(name string) api.Key {
	return api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: name}, Actor: "crawler"}
}

// nowhere are the options of a runner that never runs.
func nowhere(t *testing.T, dir string) runner.Options {
	t.Helper()
	c, err := client.New(client.Options{Servers: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	return runner.Options{Client: c, Dir: dir, Instance: "w-1", Handler: func(context.Context, *runner.Task) error { return nil }}
}

func mustOpen(t *testing.T, o runner.Options) *runner.Runner {
	t.Helper()
	r, err := runner.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// filled returns a folder with the job "a", and the path of its file.
func filled(t *testing.T) (dir, file string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "jobs")
	r := mustOpen(t, nowhere(t, dir))
	if err := r.Submit(runner.Job{ID: "a", Key: key("a"), Payload: []byte("payload")}); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, runner.FileName("a"))
}

func TestRunner_jobsStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := mustOpen(t, nowhere(t, dir))
	if _, err := runner.Open(nowhere(t, dir)); !errors.Is(err, runner.ErrInUse) {
		t.Errorf("opened twice: got %v, want ErrInUse", err)
	}
	for _, id := range []string{"b", "a", "c", "B"} {
		if err := r.Submit(runner.Job{ID: id, Key: key(id), Payload: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Submit(runner.Job{ID: "a", Key: key("x")}); !errors.Is(err, runner.ErrExists) {
		t.Errorf("submitted twice: got %v, want ErrExists", err)
	}
	for _, id := range []string{"", strings.Repeat("x", 129), "a b", "ä", "\n"} {
		if err := r.Submit(runner.Job{ID: id}); err == nil {
			t.Errorf("the id %q is taken", id)
		}
	}
	if err := r.Submit(runner.Job{ID: "big", Payload: make([]byte, 1<<20+1)}); err == nil {
		t.Error("a payload of more than 1 MiB is taken")
	}
	if err := errors.Join(r.Forget("c"), r.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	if err := r.Submit(runner.Job{ID: "late", Key: key("late")}); err == nil {
		t.Error("a closed runner takes a job")
	}
	again := mustOpen(t, nowhere(t, dir))
	want := r.Jobs()
	if diff := cmp.Diff(want, again.Jobs()); diff != "" || len(want) != 3 {
		t.Errorf("%d jobs; after a restart (-before +after):\n%s", len(want), diff)
	}
	if err := again.Forget("c"); !errors.Is(err, runner.ErrNotFound) {
		t.Errorf("forgotten twice: got %v, want ErrNotFound", err)
	}
}

// TestOpen_damaged cuts a job's file at each byte, and changes some.
func TestOpen_damaged(t *testing.T) {
	t.Parallel()
	dir, file := filled(t)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, at int, damaged []byte) {
		t.Helper()
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := runner.Open(nowhere(t, dir))
		if err == nil {
			_ = r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s at byte %d: got %v, want an error that names the file", what, at, err)
		}
	}
	for i := range content {
		refused("cut", i, content[:i])
		if i%5 != 0 {
			continue // the checksum makes no difference between bytes
		}
		changed := bytes.Clone(content)
		changed[i] ^= 1
		refused("changed", i, changed)
	}
	refused("longer", len(content), append(bytes.Clone(content), '\n'))
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, nowhere(t, dir))
}

// TestOpen_foreign: what is not this folder's is an error, and not skipped.
func TestOpen_foreign(t *testing.T) {
	t.Parallel()
	otherDir, otherFile := filled(t)
	other, err := os.ReadFile(otherFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(dir, file string) error
		open   func(*runner.Options)
		want   string // in the error; "": opens
	}{
		"a file of something else": {func(dir, _ string) error { return os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600) }, nil, "notes.txt"},
		"a folder":                 {func(dir, file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }, nil, runner.FileName("a")},
		"a link":                   {func(dir, file string) error { return errors.Join(os.Remove(file), os.Symlink(otherFile, file)) }, nil, runner.FileName("a")},
		"a job of another folder":  {func(_, file string) error { return os.WriteFile(file, other, 0o600) }, nil, "belongs to the folder"},
		"a job under another name": {func(dir, file string) error { return os.Rename(file, filepath.Join(dir, runner.FileName("b"))) }, nil, "under another name"},
		"no identity":              {func(dir, _ string) error { return os.Remove(filepath.Join(dir, "folder")) }, nil, "folder"},
		"the identity of another": {func(dir, _ string) error {
			id, err := os.ReadFile(filepath.Join(otherDir, "folder"))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "folder"), id, 0o600))
		}, nil, "belongs to the folder"},
		"an empty identity":             {func(dir, _ string) error { return os.Truncate(filepath.Join(dir, "folder"), 0) }, nil, "it is empty"},
		"another instance":              {nil, func(o *runner.Options) { o.Instance = "w-2" }, `instance "w-1"`},
		"another namespace":             {nil, func(o *runner.Options) { o.Namespace = "jobs" }, `namespace "default"`},
		"a file that was not completed": {func(_, file string) error { return os.WriteFile(file+".tmp", []byte("lea"), 0o600) }, nil, ""},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			dir, file := filled(t)
			if c.change != nil {
				if err := c.change(dir, file); err != nil {
					t.Fatal(err)
				}
			}
			o := nowhere(t, dir)
			if c.open != nil {
				c.open(&o)
			}
			r, err := runner.Open(o)
			if err == nil {
				defer func() { _ = r.Close() }()
			}
			switch {
			case c.want == "" && (err != nil || len(r.Jobs()) != 1):
				t.Errorf("got %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir)):
				t.Errorf("got %v, want an error with %q and the folder", err, c.want)
			}
			if _, err := os.Stat(file + ".tmp"); err == nil {
				t.Error("the file that was not completed is still there")
			}
		})
	}
}

// TestSubmit_cannotWrite: a job that cannot be written was not taken on.
func TestSubmit_cannotWrite(t *testing.T) {
	t.Parallel()
	dir, file := filled(t)
	r := mustOpen(t, nowhere(t, dir))
	// A folder in the place of the file that is written first.
	if err := os.Mkdir(filepath.Join(dir, runner.FileName("b")+".tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.Submit(runner.Job{ID: "b", Key: key("b")}); err == nil {
		t.Error("a job is taken on that is not on disk")
	}
	if jobs := r.Jobs(); len(jobs) != 1 || jobs[0].ID != "a" {
		t.Errorf("the jobs are %+v", jobs)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeJob(f *testing.F) {
	good, err := runner.EncodeJob("F", &runner.Status{
		Job: runner.Job{ID: "a", Key: key("a"), Payload: []byte{0, 255}}, State: runner.Running,
		Submitted: time.Unix(1e9, 5).UTC(), Runs: 2, RequestID: "r", LeaseID: "l", Token: 1<<53 - 1, Reason: "why",
	})
	if err != nil {
		f.Fatal(err)
	}
	_, content, _ := bytes.Cut(good, []byte("\n"))
	f.Add(content)
	for _, s := range []string{
		`{}`, `{"folder":"F"}`, `null`, `{"folder":"F","status":{"id":"a","state":"running"}}`,
		`{"folder":"F","status":{"id":"a","state":"acquiring"}}`, `{"folder":"F","status":{"id":"a","state":"asleep"}}`,
		`{"folder":"F","folder":"F"}`, `{"folder":"F","status":{"id":"a","state":"done","more":1}}`, `{"folder":"F","status":{"ID":"a"}}`,
	} {
		f.Add([]byte(s))
		if _, err := runner.DecodeJob(runner.Sealed([]byte(s)), "F"); err == nil {
			f.Errorf("%s is taken", s)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, err := runner.DecodeJob(content, "F"); err == nil {
			t.Errorf("without a header: %q is taken", content)
		}
		got, err := runner.DecodeJob(runner.Sealed(content), "F")
		if err != nil {
			return
		}
		written, err := runner.EncodeJob("F", &got)
		if err != nil {
			t.Fatalf("%q was read as %+v and cannot be written: %v", content, got, err)
		}
		again, err := runner.DecodeJob(written, "F")
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Errorf("%q: %v (-read +written and read):\n%s", content, err, diff)
		}
	})
}
