package holding

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leased/test/proc"
)

// runs is how many runs there are of TestHolding: at least each fault on each
// backend.
func runs(pairs int) int {
	if os.Getenv("LEASED_CHAOS") != "" {
		return 200
	}
	return pairs
}

// fault is what goes wrong in a run.
type fault struct {
	name string
	// late is how many side effects may come late: a process that was paused goes on
	// where it was, and no client can keep it from one step more. Only the token does.
	late int
	// over is for how long it lasts.
	over  time.Duration
	begin func(*stage, *holder)
	end   func(*stage, *holder)
}

func faults() []fault {
	traffic := func(name string, k proc.Traffic) fault {
		return fault{
			name: name, over: 2 * ttl,
			begin: func(s *stage, h *holder) { h.proxy.Set(s.t, k) },
			end:   func(s *stage, h *holder) { h.proxy.Set(s.t, proc.Pass) },
		}
	}
	signal := func(pid int, sig syscall.Signal) { _ = syscall.Kill(pid, sig) }
	return []fault{
		traffic("no connection", proc.Refuse),
		traffic("nobody answers", proc.Ignore),
		traffic("requests swallowed", proc.SwallowRequests),
		traffic("replies swallowed", proc.SwallowReplies),
		{
			name: "server killed", over: ttl / 2,
			begin: func(s *stage, _ *holder) { s.server.Kill() },
			end:   func(s *stage, _ *holder) { s.serve() },
		},
		{
			name: "server killed for long", over: 2 * ttl,
			begin: func(s *stage, _ *holder) { s.server.Kill() },
			end:   func(s *stage, _ *holder) { s.serve() },
		},
		{
			name: "server paused", over: 2 * ttl,
			begin: func(s *stage, _ *holder) { signal(s.server.PID(), syscall.SIGSTOP) },
			end:   func(s *stage, _ *holder) { signal(s.server.PID(), syscall.SIGCONT) },
		},
		{
			name:  "client killed",
			begin: func(_ *stage, h *holder) { h.kill() },
			end:   func(_ *stage, h *holder) { h.start() },
		},
		{
			name: "client paused", over: 2 * ttl, late: 1,
			begin: func(_ *stage, h *holder) { h.signal(syscall.SIGSTOP) },
			end:   func(_ *stage, h *holder) { h.signal(syscall.SIGCONT) },
		},
	}
}

// stage is a server, an observer, and two that want the same key.
type stage struct {
	t           *testing.T
	bin, dir    string
	config, key string
	server      *proc.Server
	observer    *observer
	holders     map[string]*holder
}

func (s *stage) serve() {
	s.server = proc.StartLeasedOn(s.t, s.bin, s.dir, s.config)
	for _, h := range s.holders {
		h.proxy.Retarget(strings.TrimPrefix(s.server.URL, "http://"))
	}
}

// holder is a process that holds the key whenever it can.
type holder struct {
	t       *testing.T
	command func() *exec.Cmd
	proxy   *proc.Proxy
	// again tells that it is started again when it ends by itself, as a service
	// manager would: `leased run` is over when a machine that does too much at once
	// has it lose the lease.
	again bool

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{} // closed when cmd has ended and is not started again
	killed bool
}

func (h *holder) start() {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.killed = false
	h.cmd, h.done = h.command(), make(chan struct{})
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go h.keep(h.cmd, h.done)
}

func (h *holder) keep(cmd *exec.Cmd, done chan struct{}) {
	defer close(done)
	for again := true; again; {
		err := cmd.Wait()
		h.mu.Lock()
		again = h.again && !h.killed
		if again {
			h.t.Logf("a holder ended by itself (%v), and is started again", err)
			cmd = h.command()
			h.cmd = cmd
			if err := cmd.Start(); err != nil {
				h.t.Errorf("start a holder again: %v", err)
				again = false
			}
		}
		h.mu.Unlock()
	}
}

// signal sends a signal to the process, the next one if it has just ended.
func (h *holder) signal(sig os.Signal) {
	h.t.Helper()
	proc.Succeeds(h.t, "the holder is sent a signal", proc.Patience, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.killed = h.killed || sig == os.Kill
		return h.cmd.Process.Signal(sig)
	})
}

func (h *holder) kill() {
	h.mu.Lock()
	h.killed = true
	_ = h.cmd.Process.Kill() // it may have ended by itself
	done := h.done
	h.mu.Unlock()
	<-done
}

func newStage(t *testing.T, bin string, b backend, key string, underRun bool) *stage {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, bin: bin, dir: t.TempDir(), config: b.config, key: key, observer: newObserver(t), holders: map[string]*holder{}}
	s.serve()
	for _, name := range []string{"one", "two"} {
		h := &holder{t: t, again: underRun, proxy: proc.StartProxy(t, strings.TrimPrefix(s.server.URL, "http://"))}
		h.command = func() *exec.Cmd {
			cmd, role := exec.Command(exe), "holder"
			if underRun {
				role = "command"
				cmd = exec.Command(bin, "run", "-q", "--instance", name, "--tenant", "acme", "--target", "name:"+key, "--actor", "holder",
					"--ttl", ttl.String(), "--margin", margin.String(), "--wait", "1m", "--", exe)
			}
			cmd.Env = append(os.Environ(), roleVariable+"="+role, "OBSERVER="+s.observer.address, "NAME="+name, "KEY="+key,
				"LEASED_SERVER=http://"+h.proxy.Address, "GORACE=atexit_sleep_ms=0")
			return cmd
		}
		s.holders[name] = h
		t.Cleanup(func() { h.kill() })
		h.start()
	}
	return s
}

// TestHolding cuts off, kills and pauses servers and clients under two processes
// that want the same key, and watches their side effects. None of one holder ever
// comes after one of a later holder, and work goes on after each fault.
func TestHolding(t *testing.T) {
	t.Parallel()
	bin := proc.Build(t, "leased/cmd/leased")
	all, backends := faults(), backends(t)
	pairs := len(all) * len(backends)
	for i := range runs(pairs) {
		f, b := all[i%len(all)], backends[i/len(all)%len(backends)]
		t.Run(fmt.Sprintf("%d/%s/%s", i, f.name, b.name), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, bin, b, fmt.Sprint("guarded-", i), false)
			s.observer.waitFor(1, "somebody holds the key")
			time.Sleep(rand.N(ttl)) // anywhere between two renewals
			name, before := s.observer.now()
			h := s.holders[name]
			f.begin(s, h)
			time.Sleep(f.over)
			f.end(s, h)
			if f.over > ttl || f.name == "client killed" {
				s.observer.waitFor(before+1, "the key has passed to another")
			}
			// And on once more, with everything healed.
			name, before = s.observer.now()
			s.holders[name].kill()
			s.observer.waitFor(before+1, "the work goes on")
			s.check(f.late)
		})
	}
	// The same for commands that know nothing of leases, under `leased run`: also
	// when that is paused or killed, none of them makes a side effect late.
	for i := range max(4, runs(pairs)/10) {
		sig := []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL}[i%2]
		t.Run(fmt.Sprintf("run/%d/%s", i, sig), func(t *testing.T) {
			t.Parallel()
			s := newStage(t, bin, backends[0], fmt.Sprint("run-", i), true)
			s.observer.waitFor(1, "somebody holds the key")
			time.Sleep(rand.N(ttl))
			name, before := s.observer.now()
			s.holders[name].signal(sig)
			s.observer.waitFor(before+1, "the key has passed to another")
			s.check(0)
		})
	}
}

// backend is what the server of a run keeps its leases in.
type backend struct{ name, config string }

func backends(t *testing.T) []backend {
	t.Helper()
	valkey, etcd := proc.StartValkey(t), proc.StartEtcd(t, proc.EtcdOptions{})
	const config = "backends: {b: {type: %s, %s: [%q]}}\nnamespaces: {default: {backend: b}}\n"
	return []backend{
		{"raftkv", "backends: {b: {type: raftkv}}\nnamespaces: {default: {backend: b}}\n"},
		{"valkey", fmt.Sprintf(config, "valkey", "addresses", valkey.Addr)},
		{"etcd", fmt.Sprintf(config, "etcd", "endpoints", strings.TrimPrefix(etcd.Endpoints()[0], "http://"))},
	}
}

// check looks at what was seen, of which so many side effects may have come late.
func (s *stage) check(late int) {
	s.t.Helper()
	s.observer.mu.Lock()
	defer s.observer.mu.Unlock()
	if len(s.observer.late) > late {
		s.t.Errorf("side effects after those of a later holder, of which there may be %d:\n%s", late, strings.Join(s.observer.late, "\n"))
	}
	s.t.Logf("%d held it, the longest time between two was %v; %d late side effects were refused", s.observer.tokens, s.observer.gap, len(s.observer.late))
}
