package proc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// EtcdTB is what starting an etcd needs of a test.
type EtcdTB interface {
	Helper()
	Cleanup(f func())
	TempDir() string
	Fatalf(format string, args ...any)
}

// EtcdOptions say what kind of etcd to start.
type EtcdOptions struct {
	// Members is how many, 1 if it is 0.
	Members int
	// NoFsync leaves out waiting for the disk: for a server that no test restarts.
	NoFsync bool
	// TLS has clients speak TLS; Args name the files of the certificates.
	TLS bool
	// Via returns where the other members reach one that listens for them at an
	// address; they reach it there if Via is nil.
	Via func(address string) string
	// Args are given to each member besides, such as
	// "--quota-backend-bytes=16777216".
	Args []string
}

// Etcd is a running etcd of one member or more.
type Etcd struct {
	bin     string
	members []*etcdMember
}

type etcdMember struct {
	name, client, peer, dir string
	via                     string // where the others reach peer
	health                  string // where the member tells that it serves
	args                    []string
	cmd                     *exec.Cmd
	done                    chan struct{}
}

// StartEtcd starts an etcd with a data folder of its own and waits until it
// serves. It is killed at the end of the test.
func StartEtcd(t EtcdTB, o EtcdOptions) *Etcd {
	t.Helper()
	e := &Etcd{bin: etcdBinary(t)}
	dir := t.TempDir()
	var cluster []string
	for i := range max(o.Members, 1) {
		m := &etcdMember{
			name: fmt.Sprint("m", i), client: etcdURL(t), peer: etcdURL(t), dir: filepath.Join(dir, fmt.Sprint("m", i)),
		}
		if m.health = m.client; o.TLS {
			m.health, m.client = etcdURL(t), strings.Replace(m.client, "http", "https", 1)
		}
		if m.via = m.peer; o.Via != nil {
			m.via = "http://" + o.Via(strings.TrimPrefix(m.peer, "http://"))
		}
		e.members = append(e.members, m)
		cluster = append(cluster, m.name+"="+m.via)
	}
	for _, m := range e.members {
		m.args = append([]string{
			"--name=" + m.name, "--data-dir=" + m.dir, "--log-level=error",
			"--listen-client-urls=" + m.client, "--advertise-client-urls=" + m.client,
			"--listen-peer-urls=" + m.peer, "--initial-advertise-peer-urls=" + m.via,
			"--initial-cluster=" + strings.Join(cluster, ","), "--initial-cluster-token=" + filepath.Base(dir),
		}, o.Args...)
		if o.TLS {
			m.args = append(m.args, "--listen-metrics-urls="+m.health)
		}
		if o.NoFsync {
			m.args = append(m.args, "--unsafe-no-fsync")
		}
	}
	t.Cleanup(func() {
		for i := range e.members {
			e.Kill(i)
		}
	})
	e.StartAll(t)
	return e
}

// etcdBinary finds the server that test/setup.sh has built.
func etcdBinary(t EtcdTB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("this test runs outside the module")
		}
	}
	bin := filepath.Join(dir, "bin", "tools", "etcd")
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("there is no etcd: run test/setup.sh")
	}
	return bin
}

func etcdURL(t EtcdTB) string {
	t.Helper()
	return "http://" + loopback(FreePort(t))
}

// Endpoints returns the client URLs of the members.
func (e *Etcd) Endpoints() []string {
	var urls []string
	for _, m := range e.members {
		urls = append(urls, m.client)
	}
	return urls
}

// IDs returns the ids of the members, in hexadecimal as they tell them to each other.
func (e *Etcd) IDs(t EtcdTB) []string {
	t.Helper()
	res, err := http.Post(e.members[0].health+"/v3/cluster/member/list", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatalf("the members of etcd: %v", err)
	}
	defer res.Body.Close()
	var list struct {
		Members []struct {
			ID   uint64 `json:"ID,string"` //nolint:tagliatelle // etcd's name
			Name string `json:"name"`
		} `json:"members"`
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		t.Fatalf("the members of etcd: %v", err)
	}
	ids := make([]string, len(e.members))
	for _, m := range list.Members {
		at := slices.IndexFunc(e.members, func(k *etcdMember) bool { return k.name == m.Name })
		ids[at] = strconv.FormatUint(m.ID, 16)
	}
	return ids
}

// PID returns the process id of a member.
func (e *Etcd) PID(i int) int { return e.members[i].cmd.Process.Pid }

// StartAll starts the members that do not run and waits until each serves.
func (e *Etcd) StartAll(t EtcdTB) {
	t.Helper()
	for i := range e.members {
		e.Launch(t, i)
	}
	for i := range e.members {
		e.Await(t, i)
	}
}

// Launch starts a member on the data that it has, unless it runs.
func (e *Etcd) Launch(t EtcdTB, i int) {
	t.Helper()
	m := e.members[i]
	if m.cmd != nil {
		return
	}
	m.cmd = exec.Command(e.bin, m.args...)
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		t.Fatalf("%v", err)
	}
	log, err := os.OpenFile(m.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer func() { _ = log.Close() }()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	m.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) { _ = cmd.Wait(); close(done) }(m.cmd, m.done)
}

// Await waits until a member serves.
func (e *Etcd) Await(t EtcdTB, i int) {
	t.Helper()
	m := e.members[i]
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for !etcdServes(ctx, m.health) {
		select {
		case <-m.done:
			text, _ := os.ReadFile(m.dir + ".log")
			t.Fatalf("etcd ended while it started:\n%s", text)
		case <-ctx.Done():
			t.Fatalf("etcd does not serve after %v", startTimeout)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func etcdServes(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health?serializable=false", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// Kill ends a member with SIGKILL and waits for it.
func (e *Etcd) Kill(i int) {
	m := e.members[i]
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill() // it may have ended by itself
	<-m.done
	m.cmd = nil
}

// Restart kills all members and starts them on what is on their disks.
func (e *Etcd) Restart(t EtcdTB) {
	t.Helper()
	for i := range e.members {
		e.Kill(i)
	}
	e.StartAll(t)
}

// Empty kills a member and removes its data.
func (e *Etcd) Empty(t EtcdTB, i int) {
	t.Helper()
	e.Kill(i)
	if err := os.RemoveAll(e.members[i].dir); err != nil {
		t.Fatalf("%v", err)
	}
}

// Backup kills a member and copies its data. What it returns kills it again and
// puts the copy in the place of what the member has by then.
func (e *Etcd) Backup(t EtcdTB, i int) (restore func()) {
	t.Helper()
	e.Kill(i)
	m := e.members[i]
	backup := t.TempDir()
	copied := func(to, from string) {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatalf("copy etcd's data: %v", err)
		}
	}
	copied(backup, m.dir)
	return func() {
		e.Empty(t, i)
		copied(m.dir, backup)
	}
}

// Pause stops a member until Resume.
func (e *Etcd) Pause(t TB, i int) {
	t.Helper()
	Pause(t, e.members[i].cmd.Process)
}

// Resume lets a member that was paused go on.
func (e *Etcd) Resume(i int) { _ = e.members[i].cmd.Process.Signal(syscall.SIGCONT) }
