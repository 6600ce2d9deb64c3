package docs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// procedure is a part of a page with commands, which stand in blocks.
type procedure struct {
	title  string
	blocks []string
}

// procedures returns the parts of the guide that are to be performed, in order.
func procedures(t *testing.T) []procedure {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut(string(text), "\n## Procedures\n")
	if !found {
		t.Fatal("docs/operations.md has no procedures")
	}
	part, _, _ = strings.Cut(part, "\n## ")
	block := regexp.MustCompile("(?s)```sh\n(.*?)```")
	var all []procedure
	for section := range strings.SplitSeq(part, "\n### ") {
		title, body, _ := strings.Cut(section, "\n")
		p := procedure{title: title}
		for _, m := range block.FindAllStringSubmatch(body, -1) {
			p.blocks = append(p.blocks, m[1])
		}
		if len(p.blocks) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// shell is a bash that runs what it is given, and ends when something fails.
type shell struct {
	in    io.WriteCloser
	lines chan string
	done  string
}

func newShell(t *testing.T, dir, path string) *shell {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-s")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	// What it starts is in its process group, and ended with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	s := &shell{in: in, lines: make(chan string, 1000), done: "done-" + filepath.Base(dir)}
	go func() {
		defer close(s.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	s.run(t, "set -euo pipefail\n")
	return s
}

// run runs a block and returns what it printed.
func (s *shell) run(t *testing.T, block string) string {
	t.Helper()
	if _, err := io.WriteString(s.in, block+"\necho "+s.done+"\n"); err != nil {
		t.Fatal(err)
	}
	limit := time.After(3 * time.Minute)
	var printed strings.Builder
	for {
		select {
		case line, more := <-s.lines:
			switch {
			case !more:
				t.Fatalf("a command failed in\n%s\nwhich printed\n%s", block, printed.String())
			case line == s.done:
				return printed.String()
			}
			printed.WriteString(line + "\n")
		case <-limit:
			t.Fatalf("it takes more than 3 minutes:\n%s\nwhich printed\n%s", block, printed.String())
		}
	}
}

// practice is the cluster that the procedures are performed on, and what is
// expected to be there.
type practice struct {
	client *client.Client
	lease  *api.Lease
	last   uint64 // token
}

// nodes compares the members, which must be healthy voters.
func (p *practice) nodes(t *testing.T, want ...string) {
	t.Helper()
	got, err := p.client.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, n := range got.Nodes {
		ids = append(ids, n.ID)
		if !n.Healthy || !n.Voter {
			t.Errorf("node %s: %+v, want a healthy voter", n.ID, n)
		}
	}
	for _, id := range want {
		if !strings.Contains(strings.Join(ids, " "), id) {
			t.Errorf("members %q, want %q", ids, want)
		}
	}
	if len(ids) != len(want) {
		t.Errorf("members %q, want %q", ids, want)
	}
}

// kept holds the cluster to the lease from the beginning and to tokens that rise.
func (p *practice) kept(t *testing.T) {
	t.Helper()
	got, err := p.client.Get(t.Context(), "", p.lease.LeaseID)
	if err != nil || got.State != "active" || got.Token != p.lease.Token {
		t.Errorf("the lease from the beginning: got %+v, error %v", got, err)
	}
	p.grants(t)
}

func (p *practice) grants(t *testing.T) {
	t.Helper()
	got, err := p.client.Acquire(t.Context(), client.AcquireRequest{
		Instance: "i", TTL: time.Minute, Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: "other"}, Actor: "crawler"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Lease.Token <= p.last {
		t.Errorf("token %d after %d", got.Lease.Token, p.last)
	}
	p.last = got.Lease.Token
	if _, err := p.client.Release(t.Context(), client.ReleaseRequest{LeaseID: got.Lease.LeaseID, Token: p.last, Instance: "i"}); err != nil {
		t.Error(err)
	}
}

// begin has a lease that everything after it must keep.
func (p *practice) begin(t *testing.T) {
	t.Helper()
	got, err := p.client.Acquire(t.Context(), client.AcquireRequest{
		Instance: "i", TTL: time.Hour, Key: api.Key{Tenant: "acme", Target: api.Target{Type: "domain", ID: "example.com"}, Actor: "crawler"},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.lease, p.last = got.Lease, got.Lease.Token
}

// restored holds the cluster to what a restore promises.
func (p *practice) restored(t *testing.T) {
	t.Helper()
	got, err := p.client.Get(t.Context(), "", p.lease.LeaseID)
	if err != nil || got.State != "expired" || got.Reason == "" {
		t.Errorf("the lease from the beginning: got %+v, error %v, want it expired with a reason", got, err)
	}
	p.grants(t)
}

// TestProcedures performs what docs/operations.md tells to do, as it stands there,
// and looks at what came of it.
func TestProcedures(t *testing.T) {
	if !proc.OwnNetwork(t) {
		return // the page names ports
	}
	bin, dir := proc.Build(t, "leased/cmd/leased"), t.TempDir()
	deploy, err := filepath.Abs("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(deploy, filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	var servers []string
	for i := 1; i <= 4; i++ {
		servers = append(servers, fmt.Sprintf("http://127.0.0.1:84%d0", i))
	}
	c, err := client.New(client.Options{Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := &practice{client: c}
	after := map[string]func(t *testing.T, printed string){
		"A cluster to practise on": func(t *testing.T, _ string) { t.Helper(); p.nodes(t, "n1", "n2", "n3"); p.begin(t) },
		"Restarting all nodes, as for an upgrade": func(t *testing.T, _ string) {
			t.Helper()
			p.nodes(t, "n1", "n2", "n3")
			p.kept(t)
		},
		"Replacing a node by another": func(t *testing.T, _ string) { t.Helper(); p.nodes(t, "n1", "n3", "n4"); p.kept(t) },
		"A node that lost its disk":   func(t *testing.T, _ string) { t.Helper(); p.nodes(t, "n1", "n3", "n4"); p.kept(t) },
		"Renewing certificates": func(t *testing.T, printed string) {
			t.Helper()
			serials := regexp.MustCompile("(?m)^serial=.+$").FindAllString(printed, -1)
			if len(serials) != 2 || serials[0] != serials[1] {
				t.Errorf("the serial numbers of the certificate and of the one in use: %q", serials)
			}
			p.nodes(t, "n1", "n3", "n4")
			p.kept(t)
		},
		"Backup, and the drill of restoring it": func(t *testing.T, printed string) {
			t.Helper()
			if !strings.Contains(printed, "restored") || !strings.Contains(printed, p.lease.LeaseID) {
				t.Errorf("the drill does not show the restored history: %s", printed)
			}
			p.kept(t)
		},
		"A majority that does not run": func(t *testing.T, printed string) {
			t.Helper()
			if !strings.Contains(printed, "no node leads") {
				t.Errorf("the status without a majority: %s", printed)
			}
			p.nodes(t, "n1", "n3", "n4")
			p.kept(t)
		},
		"A majority whose data is lost": func(t *testing.T, _ string) { t.Helper(); p.nodes(t, "n1", "n3", "n4"); p.restored(t) },
	}
	s := newShell(t, dir, filepath.Dir(bin))
	for _, procedure := range procedures(t) {
		check := after[procedure.title]
		if check == nil {
			t.Fatalf("nothing looks at what comes of %q", procedure.title)
		}
		delete(after, procedure.title)
		var printed strings.Builder
		for _, block := range procedure.blocks {
			printed.WriteString(s.run(t, block))
		}
		t.Logf("%s:\n%s", procedure.title, printed.String())
		check(t, printed.String())
		if t.Failed() {
			t.Fatalf("%s: see above", procedure.title)
		}
	}
	for title := range after {
		t.Errorf("there is no procedure %q", title)
	}
}

// TestReadme runs the cluster that the README shows, and what it says to do then.
func TestReadme(t *testing.T) {
	if !proc.OwnNetwork(t) {
		return
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(text), "\n## Three nodes\n")
	part, _, _ = strings.Cut(part, "\n## ")
	var block strings.Builder
	for line := range strings.Lines(part) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			block.WriteString(command)
		}
	}
	kill := regexp.MustCompile("`(kill -9 [^`]*)`").FindStringSubmatch(part)
	if kill == nil {
		t.Fatal("the README does not say how a node is killed")
	}
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	commands := strings.Replace(block.String(), "go build -o leased ./cmd/leased", "go build -C "+root+" -o "+dir+"/leased ./cmd/leased", 1)
	s := newShell(t, dir, dir)
	first := s.run(t, commands)
	if !strings.Contains(first, "acquired") {
		t.Errorf("the README's cluster printed\n%s\nwant a lease", first)
	}
	then := s.run(t, kill[1]+"\n./leased list\n./leased cluster status")
	if !strings.Contains(then, "example.com") {
		t.Errorf("after %s: %s, want the lease", kill[1], then)
	}
	ctx, cancel := context.WithTimeout(t.Context(), proc.Patience)
	defer cancel()
	c, err := client.New(client.Options{Servers: []string{"http://127.0.0.1:8420", "http://127.0.0.1:8430"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Acquire(ctx, client.AcquireRequest{
		Instance: "i", Key: api.Key{Tenant: "acme", Target: api.Target{Type: "domain", ID: "example.com"}, Actor: "crawler"},
	})
	if !errors.Is(err, client.ErrConflict) {
		t.Errorf("the key of the lease: got error %v, want %v", err, client.ErrConflict)
	}
}
