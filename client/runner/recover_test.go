package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"leased/client"
	"leased/client/runner"
)

// TestRunner_earlierAnswer: what a request from before a restart was granted is
// over by now, or the request was another one. The job asks anew.
func TestRunner_earlierAnswer(t *testing.T) {
	t.Parallel()
	server := serve(t)
	for name, ttl := range map[string]time.Duration{"released": 30 * time.Second, "another_request": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, server.URL, func(context.Context, *runner.Task) error { return nil }, nil)
			g.submit("a")
			got, err := g.c.Acquire(t.Context(), client.AcquireRequest{
				RequestID: "before", Key: g.key("a"), Instance: g.o.Instance, TTL: ttl, JobID: "a",
				Metadata: map[string]string{"leased-runner": g.r.FolderID()},
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = g.c.Release(t.Context(), client.ReleaseRequest{LeaseID: got.Lease.LeaseID, Token: got.Lease.Token, Instance: g.o.Instance})
			if err != nil {
				t.Fatal(err)
			}
			s := g.job("a")
			s.State, s.RequestID = runner.Acquiring, "before"
			file, err := runner.EncodeJob(g.r.FolderID(), &s)
			if err != nil {
				t.Fatal(err)
			}
			if err := g.r.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(g.o.Dir, runner.FileName("a")), file, 0o600); err != nil {
				t.Fatal(err)
			}
			g.open()
			g.run()
			if s := g.wantState("a", runner.Done); s.Token <= got.Lease.Token || s.RequestID == "before" {
				t.Errorf("got %+v, want a lease after that with token %d", s, got.Lease.Token)
			}
		})
	}
}
