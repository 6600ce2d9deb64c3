package prove

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"leased/client"
	"leased/test/history"
	"leased/test/proc"
)

// clients is how many processes there are, of two workers each.
const clients = 4

// run is one load on one deployment.
type run struct {
	t        *testing.T
	dir      string // of what is kept
	d        *deployment
	role     role // of the clients, but for name and file
	clients  []*process
	rng      *rand.Rand
	register string
	stalls   stalls
	history  history.History
}

// process is a client.
type process struct {
	name   string
	starts int
	files  []string
	cmd    *exec.Cmd
}

// shortSeed is that of the runs of make test, so that they differ by what was changed.
const shortSeed = 1

// seed returns the seed of all that is left to chance: SEED; without it that of the
// short form, or another one each time where DURATION makes it long.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("SEED")
	switch {
	case text == "" && os.Getenv("DURATION") == "":
		return shortSeed
	case text == "":
		return rand.Uint64() >> 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SEED: %v", err)
	}
	return n
}

// duration returns for how long there is load: DURATION, or short.
func duration(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("DURATION")
	if text == "" {
		return short
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("DURATION: %v", err)
	}
	return d
}

func newRun(t *testing.T, d *deployment, seed uint64, unfenced bool) *run {
	t.Helper()
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name())) // it cannot fail
	r := &run{
		t: t, dir: t.ArtifactDir(), d: d, register: newRegister(t),
		rng:  rand.New(rand.NewPCG(seed, h.Sum64())),
		role: role{Seed: seed, Servers: d.servers, Keys: []string{"one", "two", "three"}, Unfenced: unfenced},
	}
	r.stalls = watchStalls()
	t.Cleanup(func() { r.stalls.stop() })
	t.Logf("seed %d: repeat it with SEED=%d", seed, seed)
	r.role.Register = r.register
	for i := range clients {
		p := &process{name: fmt.Sprint("c", i+1)}
		r.clients = append(r.clients, p)
		t.Cleanup(func() { r.end(p, os.Kill) })
		r.start(p)
		r.d.faults = append(r.d.faults,
			fault{name: p.name + ": killed", begin: func() { r.end(p, os.Kill) }, mend: func() { r.start(p) }},
			fault{name: p.name + ": paused", begin: func() { proc.Pause(t, p.cmd.Process) }, mend: func() { proc.Resume(t, p.cmd.Process) }},
		)
	}
	return r
}

// start starts a client, each time under another name.
func (r *run) start(p *process) {
	r.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	p.starts++
	role := r.role
	role.Name = fmt.Sprintf("%s.%d", p.name, p.starts)
	role.File = filepath.Join(r.dir, "calls-"+role.Name+".jsonl")
	p.files = append(p.files, role.File)
	// It is there also if the client is killed before it has begun.
	if err := os.WriteFile(role.File, nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
	text, err := json.Marshal(role)
	if err != nil {
		r.t.Fatal(err)
	}
	p.cmd = exec.Command(exe)
	p.cmd.Env = append(os.Environ(), roleVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// end ends a client with a signal, if it runs.
func (r *run) end(p *process, s os.Signal) {
	r.t.Helper()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(s) // it may have ended by itself
	err := p.cmd.Wait()
	p.cmd = nil
	if s != os.Kill && err != nil {
		r.t.Errorf("client %s: %v", p.name, err)
	}
}

// sleep lets the load go on for a part of limit.
func (r *run) sleep(least, limit time.Duration) {
	time.Sleep(least + time.Duration(r.rng.Int64N(int64(limit-least))))
}

// torment does one thing after the other to the service for a time, and those that come
// first whatever the time.
func (r *run) torment(lasting time.Duration) {
	r.t.Helper()
	for end := time.Now().Add(lasting); time.Now().Before(end) || len(r.d.first) > 0; {
		r.sleep(300*time.Millisecond, 1500*time.Millisecond)
		r.suffer(r.choose())
	}
	r.sleep(300*time.Millisecond, 1500*time.Millisecond)
}

// suffer does one thing to the service, and mends it after a while.
func (r *run) suffer(f fault) {
	r.t.Helper()
	happened := history.Fault{Name: f.name, FromNS: history.Now(), Harmless: f.harmless}
	f.begin()
	r.sleep(100*time.Millisecond, 2500*time.Millisecond)
	f.mend()
	r.d.await(r.t)
	happened.ToNS = history.Now()
	r.history.Faults = append(r.history.Faults, happened)
}

// choose returns what happens next.
func (r *run) choose() fault {
	r.t.Helper()
	from := r.d.faults
	if len(r.d.first) > 0 {
		from = slices.DeleteFunc(slices.Clone(from), func(f fault) bool { return f.kind() != r.d.first[0] })
		if len(from) == 0 {
			r.t.Fatalf("there is no fault of the kind %q", r.d.first[0])
		}
		r.d.first = r.d.first[1:]
	}
	return from[r.rng.IntN(len(from))]
}

// await waits until the clients have made so many calls, however slow the machine.
func (r *run) await(calls int) {
	r.t.Helper()
	proc.Until(r.t, "the clients have made enough calls", proc.Patience, func() bool {
		made := 0
		for _, p := range r.clients {
			for _, file := range p.files {
				text, err := os.ReadFile(file)
				if err != nil {
					r.t.Fatal(err)
				}
				made += bytes.Count(text, []byte("\n")) / 2
			}
		}
		return made >= calls
	})
}

// collect ends the clients and gathers what they and the server know.
func (r *run) collect() {
	r.t.Helper()
	for _, p := range r.clients {
		r.end(p, syscall.SIGTERM)
		for _, file := range p.files {
			ops, err := history.Read(file)
			if err != nil {
				r.t.Fatal(err)
			}
			r.history.Ops = append(r.history.Ops, ops...)
			if err := os.Remove(file); err != nil {
				r.t.Fatal(err)
			}
		}
		p.files = nil
	}
	slices.SortFunc(r.history.Ops, func(a, b history.Op) int { return int(a.CalledNS - b.CalledNS) })
	r.history.Writes = written(r.t, r.register)
	c, err := client.New(client.Options{Servers: r.d.direct})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	r.history.Events = nil // those of before are among them
	for _, name := range r.role.Keys {
		r.history.Events = append(r.history.Events, events(r.t, c, name)...)
	}
}

// resume goes on after collect, with new clients.
func (r *run) resume() {
	r.t.Helper()
	r.stalls = watchStalls()
	for _, p := range r.clients {
		r.start(p)
	}
}

// events returns a key's history, oldest first.
func events(t *testing.T, c *client.Client, name string) []history.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proc.Patience)
	defer cancel()
	resolved, err := c.Resolve(ctx, "", key(name))
	if err != nil {
		t.Fatalf("resolve key %s: %v", name, err)
	}
	var all []history.Event
	for cursor := ""; ; {
		page, err := c.History(ctx, client.HistoryRequest{KeyID: resolved.KeyID, Limit: 1000, Cursor: cursor})
		if err != nil {
			t.Fatalf("history of key %s: %v", name, err)
		}
		for _, e := range page.Events {
			all = append(all, history.Event{Key: name, Event: e.Event, Lease: e.LeaseID, Token: e.Token, Request: e.RequestID, Reason: e.Reason})
		}
		if cursor = page.NextCursor; cursor == "" {
			slices.Reverse(all)
			return all
		}
	}
}

// outcomes counts what was answered to what.
func (r *run) outcomes() map[string]int {
	n := map[string]int{}
	for i := range r.history.Ops {
		o := &r.history.Ops[i]
		n[o.Verb+" "+o.Answer.Outcome]++
	}
	return n
}

// judge returns what is wrong, and says how much was looked at.
func (r *run) judge() []history.Violation {
	r.t.Helper()
	began, faults, stood := time.Now(), len(r.history.Faults), r.stalls.stop()
	r.history.Faults = append(r.history.Faults, stood...)
	bad := r.history.Check(r.d.promise)
	r.t.Logf("%d calls, %d writes accepted, %d faults, the machine stood still %d times, %d violations (found in %v); answers: %v", len(r.history.Ops), len(r.history.Writes),
		faults, len(stood), len(bad), time.Since(began).Round(time.Millisecond), r.outcomes())
	return bad
}

// scarce names what was answered too seldom. A service that grants nothing keeps every
// law, and so does one that revokes nothing.
func (r *run) scarce() string {
	got := r.outcomes()
	for what, least := range map[string]int{"acquire acquired": 20, "revoke revoked": 3} {
		if got[what] < least {
			return fmt.Sprintf("%q was answered %d times, want at least %d", what, got[what], least)
		}
	}
	return ""
}

func (r *run) wantEnough() {
	r.t.Helper()
	if what := r.scarce(); what != "" {
		r.t.Error(what)
	}
}

// keep writes down what there is, and keeps it where the test has failed.
func (r *run) keep(bad []history.Violation) {
	r.t.Helper()
	save := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Error(err)
		}
	}
	save(history.Save(filepath.Join(r.dir, "calls.jsonl"), r.history.Ops))
	save(history.Save(filepath.Join(r.dir, "events.jsonl"), r.history.Events))
	save(history.Save(filepath.Join(r.dir, "writes.jsonl"), r.history.Writes))
	save(history.Save(filepath.Join(r.dir, "faults.jsonl"), r.history.Faults))
	page, err := os.Create(filepath.Join(r.dir, "timeline.html"))
	save(err)
	save(r.history.Timeline(page, r.t.Name(), bad))
	save(page.Close())
	for i, v := range bad {
		if v.Linearisation != nil {
			save(v.Draw(filepath.Join(r.dir, fmt.Sprintf("order-%d.html", i+1))))
		}
	}
	for i, log := range r.d.logs {
		text, err := os.ReadFile(log)
		save(err)
		save(os.WriteFile(filepath.Join(r.dir, fmt.Sprintf("server-%d.log", i+1)), text, 0o600))
	}
	if len(bad) == 0 {
		return
	}
	kept, err := os.MkdirTemp("", "leased-prove-")
	save(err)
	save(os.CopyFS(kept, os.DirFS(r.dir)))
	r.t.Logf("what was seen is in %s", kept)
}
