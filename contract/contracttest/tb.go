package contracttest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
)

// TB is what a rule and a harness need of a test. *testing.T has it, and so has
// what RunRule uses outside go test. As there, FailNow and Fatalf end the
// calling goroutine and may only be called on the rule's own; the others may be
// called from any.
type TB interface {
	Helper()
	Name() string
	// Context ends when the rule is over, before the functions given to
	// Cleanup run.
	Context() context.Context
	Cleanup(f func())
	TempDir() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	FailNow()
	Failed() bool
}

// recorder is the TB of a rule that runs outside go test: it keeps what the
// rule says.
type recorder struct {
	name string
	ctx  context.Context //nolint:containedctx // as in *testing.T: it is the rule's, and the recorder lives as long

	mu       sync.Mutex
	failed   bool
	failures []string
	logs     []string
	cleanups []func()
}

// run calls f on a goroutine of its own, so that FailNow can end it without
// ending the caller, then the clean-ups, last one first.
func (r *recorder) run(cancel context.CancelFunc, f func()) {
	r.protect(f)
	cancel()
	for {
		r.mu.Lock()
		last := len(r.cleanups) - 1
		if last < 0 {
			r.mu.Unlock()
			return
		}
		cleanup := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		r.mu.Unlock()
		r.protect(cleanup)
	}
}

// protect runs f to its end, be it a return, FailNow or a panic: a store that
// answers nonsense must fail the rule, not the program that asked.
func (r *recorder) protect(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) Helper() {}

func (r *recorder) Name() string { return r.name }

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) TempDir() string {
	dir, err := os.MkdirTemp("", "contract-")
	if err != nil {
		r.Fatalf("temporary folder: %v", err)
	}
	r.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			r.Errorf("temporary folder: %v", err)
		}
	})
	return dir
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}

func (r *recorder) FailNow() {
	r.mu.Lock()
	r.failed = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) report() (failed bool, failures, logs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed, slices.Clone(r.failures), slices.Clone(r.logs)
}
