package proc

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// TB is what servers need of a test; *testing.T has it, and so has the TB of
// the contract suite.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(f func())
	TempDir() string
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Valkey is a Valkey server, or a sentinel, on a port of its own. Its data stays
// over restarts.
type Valkey struct {
	Addr string
	Dir  string
	port int
	args []string
	bin  string
	cmd  *exec.Cmd
	done chan struct{}
}

// StartValkey starts a server on a free loopback port with its data in a
// temporary folder. Options are those of valkey.conf, name and value in turns:
// "appendonly", "yes".
func StartValkey(t TB, options ...string) *Valkey {
	t.Helper()
	return startValkey(t, "valkey-server", nil, options)
}

func startValkey(t TB, bin string, conf []string, options []string) *Valkey {
	t.Helper()
	v := &Valkey{bin: bin, Dir: t.TempDir(), port: FreePort(t)}
	v.Addr = loopback(v.port)
	if conf != nil {
		file := filepath.Join(v.Dir, "start.conf")
		if err := os.WriteFile(file, []byte(strings.Join(conf, "\n")+"\n"), 0o600); err != nil {
			t.Fatalf("%s: %v", bin, err)
		}
		v.args = append(v.args, file)
	}
	v.args = append(v.args, "--port", strconv.Itoa(v.port), "--bind", "127.0.0.1", "--dir", v.Dir, "--daemonize", "no")
	if bin == "valkey-server" {
		v.args = append(v.args, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
	}
	v.Options(options...)
	t.Cleanup(func() { v.Kill() })
	v.Start(t)
	return v
}

// Start starts the server again after Kill or Stop, on the same port with the
// same data, and waits until it answers.
func (v *Valkey) Start(t TB) {
	t.Helper()
	v.Launch(t)
	Until(t, v.bin+" answers", Patience, func() bool {
		select {
		case <-v.done:
			text, _ := os.ReadFile(filepath.Join(v.Dir, "log"))
			t.Fatalf("%s ended while it started:\n%s", v.bin, text)
		default:
		}
		return v.answers()
	})
}

// Launch starts the server without waiting for it to answer.
func (v *Valkey) Launch(t TB) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(v.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("%s: %v", v.bin, err)
	}
	defer func() { _ = log.Close() }()
	v.cmd = exec.Command(v.bin, v.args...)
	v.cmd.Stdout, v.cmd.Stderr = log, log
	if err := v.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", v.bin, err)
	}
	done := make(chan struct{})
	v.done = done
	cmd := v.cmd
	go func() { _ = cmd.Wait(); close(done) }()
}

// answers reports whether the server serves: it says PONG, or that it wants a
// password.
func (v *Valkey) answers() bool {
	c, err := net.DialTimeout("tcp", v.Addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	text := string(buf[:n])
	return err == nil && (strings.HasPrefix(text, "+PONG") || strings.HasPrefix(text, "-NOAUTH") || strings.HasPrefix(text, "-MASTERDOWN"))
}

// Kill ends the server with SIGKILL and waits for it. One that is paused ends too,
// and does nothing more: it must not be resumed before.
func (v *Valkey) Kill() {
	if v.cmd == nil || v.cmd.Process == nil {
		return
	}
	_ = v.cmd.Process.Kill() // it may have ended by itself
	<-v.done
}

// Stop ends the server with SIGTERM and waits for it.
func (v *Valkey) Stop() {
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
	<-v.done
}

// Pause stops the server until Resume.
func (v *Valkey) Pause(t TB) {
	t.Helper()
	Pause(t, v.cmd.Process)
}

// Resume lets a paused server go on.
func (v *Valkey) Resume() { _ = v.cmd.Process.Signal(syscall.SIGCONT) }

// PID returns the server's process id.
func (v *Valkey) PID() int { return v.cmd.Process.Pid }

// Do runs a command on the server with valkey-cli and returns what it printed.
func (v *Valkey) Do(t TB, args ...string) string {
	t.Helper()
	out, err := v.run(args)
	if err != nil {
		t.Fatalf("valkey-cli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Try is Do where it does not matter what becomes of the command.
func (v *Valkey) Try(args ...string) { _, _ = v.run(args) }

func (v *Valkey) run(args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "valkey-cli", append([]string{"-p", strconv.Itoa(v.port)}, args...)...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Options adds options for the next start.
func (v *Valkey) Options(options ...string) {
	for i := 0; i+1 < len(options); i += 2 {
		v.args = append(v.args, "--"+options[i], options[i+1])
	}
}

// Eventually waits until a command prints what is wanted of it. The command may
// fail meanwhile: a Sentinel that promotes a replica cuts its connections.
func (v *Valkey) Eventually(t TB, what string, want func(string) bool, args ...string) {
	t.Helper()
	Until(t, fmt.Sprintf("%s (valkey-cli %s)", what, strings.Join(args, " ")), Patience, func() bool {
		out, err := v.run(args)
		return err == nil && want(out)
	})
}

// StartReplica starts a server that follows primary and waits until it has
// caught up.
func StartReplica(t TB, primary *Valkey, options ...string) *Valkey {
	t.Helper()
	v := StartValkey(t, append([]string{"replicaof", "127.0.0.1 " + strconv.Itoa(primary.port)}, options...)...)
	v.Eventually(t, "the replica follows", func(s string) bool { return strings.Contains(s, "master_link_status:up") }, "INFO", "replication")
	return v
}

// CatchUp waits until a replica has what its primary has now.
func (v *Valkey) CatchUp(t TB, primary *Valkey) {
	t.Helper()
	offset := func(info, field string) int64 {
		_, rest, _ := strings.Cut(info, field+":")
		text, _, _ := strings.Cut(rest, "\r\n")
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v in %q", field, err, info)
		}
		return n
	}
	want := offset(primary.Do(t, "INFO", "replication"), "master_repl_offset")
	v.Eventually(t, "the replica has what the primary has", func(s string) bool {
		return offset(s, "slave_repl_offset") >= want
	}, "INFO", "replication")
}

// StartSentinel starts a sentinel that watches primary under the name, alone
// enough to decide, and fast: one that is silent for half a second is down. On a busy
// machine a primary that lives can be silent for as long; see StartPatientSentinel.
func StartSentinel(t TB, name string, primary *Valkey) *Valkey {
	t.Helper()
	return startSentinel(t, name, primary, sentinelHurry)
}

// StartPatientSentinel is StartSentinel for a primary that is to live until it is
// killed: before Hurry the sentinel takes nobody for down who has not ended.
func StartPatientSentinel(t TB, name string, primary *Valkey) *Valkey {
	t.Helper()
	return startSentinel(t, name, primary, time.Hour)
}

// Hurry has a patient sentinel decide as fast as another one.
func (v *Valkey) Hurry(t TB, name string) {
	t.Helper()
	v.Do(t, "SENTINEL", "SET", name, "down-after-milliseconds", strconv.FormatInt(sentinelHurry.Milliseconds(), 10))
}

const sentinelHurry = 500 * time.Millisecond

func startSentinel(t TB, name string, primary *Valkey, downAfter time.Duration) *Valkey {
	t.Helper()
	v := startValkey(t, "valkey-sentinel", []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", name, primary.port),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", name, downAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s 3000", name),
	}, nil)
	return v
}

// StartCluster starts a cluster of n primaries and waits until it serves.
func StartCluster(t TB, n int, options ...string) []*Valkey {
	t.Helper()
	nodes := make([]*Valkey, n)
	args := []string{"--cluster", "create"}
	for i := range nodes {
		nodes[i] = StartValkey(t, append([]string{"cluster-enabled", "yes", "cluster-node-timeout", "2000"}, options...)...)
		args = append(args, nodes[i].Addr)
	}
	nodes[0].Do(t, append(args, "--cluster-yes")...)
	for _, v := range nodes {
		v.WaitCluster(t)
	}
	return nodes
}

// StartReplicatedCluster starts a cluster of n primaries with a replica each, in
// the same order, and waits until it serves and the replicas have caught up.
func StartReplicatedCluster(t TB, n int, options ...string) (primaries, replicas []*Valkey) {
	t.Helper()
	options = append([]string{"cluster-enabled", "yes", "cluster-node-timeout", "2000"}, options...)
	primaries = StartCluster(t, n, options...)
	for _, p := range primaries {
		r := StartValkey(t, options...)
		r.Do(t, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(p.port))
		id := p.Do(t, "CLUSTER", "MYID")
		r.Eventually(t, "the replica knows its primary", func(s string) bool { return strings.Contains(s, id) }, "CLUSTER", "NODES")
		r.Eventually(t, "the replica is one", func(s string) bool { return s == "OK" }, "CLUSTER", "REPLICATE", id)
		r.Eventually(t, "the replica follows", func(s string) bool { return strings.Contains(s, "master_link_status:up") }, "INFO", "replication")
		replicas = append(replicas, r)
	}
	for _, v := range append(primaries, replicas...) {
		v.Eventually(t, "the node knows all", func(s string) bool { return strings.Contains(s, fmt.Sprintf("cluster_known_nodes:%d", 2*n)) }, "CLUSTER", "INFO")
		v.WaitCluster(t)
	}
	return primaries, replicas
}

// WaitCluster waits until the node of a cluster serves.
func (v *Valkey) WaitCluster(t TB) {
	t.Helper()
	v.Eventually(t, "the cluster serves", func(s string) bool { return strings.Contains(s, "cluster_state:ok") }, "CLUSTER", "INFO")
}
