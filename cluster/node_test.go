package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNode_restart(t *testing.T) {
	dir := t.TempDir()
	fsm := new(ledger)
	n := lead(t, testConfig(dir), fsm)
	index, err := n.Propose(testContext(t), []byte("a"))
	if err != nil {
		t.Fatal(err)
	}
	propose(t, n, "b", "c")
	want := []string{"a", "b", "c"}
	if diff := cmp.Diff(want, fsm.content()); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	first := n.Status()
	stop(t, n)

	fsm = new(ledger)
	n = lead(t, testConfig(dir), fsm)
	if diff := cmp.Diff(want, fsm.content()); diff != "" {
		t.Errorf("after a restart, once the node leads (-want +got):\n%s", diff)
	}
	next, err := n.Propose(testContext(t), []byte("d"))
	if err != nil {
		t.Fatal(err)
	}
	if next.(uint64) <= index.(uint64)+2 {
		t.Errorf("index of a command after the restart = %d, want above %d", next, index.(uint64)+2)
	}
	second := n.Status()
	if first.ClusterID == "" || first.ClusterID != second.ClusterID {
		t.Errorf("cluster id = %q, after a restart %q: want one that stays", first.ClusterID, second.ClusterID)
	}
}

// TestNode_electsItselfAtOnce: `serve` must work as soon as it says it does. The
// bound is the time that a node waits at least when raft's timer runs out.
func TestNode_electsItselfAtOnce(t *testing.T) {
	var fastest time.Duration
	for range 3 { // a busy machine may delay one
		begin := time.Now()
		n := lead(t, testConfig(t.TempDir()), new(ledger))
		took := time.Since(begin)
		stop(t, n)
		if fastest == 0 || took < fastest {
			fastest = took
		}
	}
	t.Logf("led after %v", fastest)
	if fastest >= heartbeatTimeout {
		t.Errorf("a node alone led after %v, want less than %v", fastest, heartbeatTimeout)
	}
}

func TestOpen_inUse(t *testing.T) {
	dir := t.TempDir()
	n := lead(t, testConfig(dir), new(ledger))
	begin := time.Now()
	second, err := Open(testContext(t), testConfig(dir), new(ledger))
	took := time.Since(begin)
	if !errors.Is(err, ErrInUse) {
		t.Fatalf("second Open = %v, %v, want %v", second, err, ErrInUse)
	}
	if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another leased process") {
		t.Errorf("second Open says %q: want it to name %s and another leased process", err, dir)
	}
	if took > 3*time.Second {
		t.Errorf("second Open took %v, want at most 3s", took)
	}
	propose(t, n, "the first one is unharmed")
	stop(t, n)
	lead(t, testConfig(dir), new(ledger))
}

// TestOpen_waitsForRestart: the folder becomes free while Open waits for it.
func TestOpen_waitsForRestart(t *testing.T) {
	dir := t.TempDir()
	n := lead(t, testConfig(dir), new(ledger))
	opened := make(chan error, 1)
	go func() {
		second, err := Open(context.Background(), testConfig(dir), new(ledger))
		if err == nil {
			err = second.Close(context.Background())
		}
		opened <- err
	}()
	stop(t, n)
	select {
	case err := <-opened:
		if err != nil {
			t.Errorf("Open while the predecessor stops = %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Open does not return")
	}
}

func TestOpen_canceled(t *testing.T) {
	dir := t.TempDir()
	lead(t, testConfig(dir), new(ledger))
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("operator gave up")
	cancel(why)
	if _, err := Open(ctx, testConfig(dir), new(ledger)); !errors.Is(err, why) {
		t.Errorf("Open with a canceled context = %v, want %v", err, why)
	}
}

func TestOpen_refusals(t *testing.T) {
	// Each case gets a folder that node n1 founded and left.
	tests := map[string]struct {
		change func(f *folder)
		want   string
	}{
		"another node id": {
			func(f *folder) { f.cfg.NodeID = "n2" },
			`belongs to node "n1", not to "n2": set node.id to "n1"`,
		},
		"no log": {
			func(f *folder) { f.remove(logDir) },
			"is gone: restore the directory from a backup",
		},
		"no list of the log's segments": {
			func(f *folder) { f.remove(filepath.Join(logDir, logMetaFile)) },
			"is gone: restore the directory from a backup",
		},
		"no segment of the log": {
			func(f *folder) {
				segment := logSegment(f.t, f.path(logDir))
				f.remove(filepath.Join(logDir, filepath.Base(segment)))
			},
			"is gone: restore the directory from a backup",
		},
		"an empty log": {
			func(f *folder) { f.truncate(filepath.Join(logDir, logMetaFile)) },
			"is empty: restore the directory from a backup",
		},
		"no identity": {
			func(f *folder) { f.remove(identityFile) },
			"identity.json is missing: restore it from a backup",
		},
		"an empty identity": {
			func(f *folder) { f.truncate(identityFile) },
			"identity.json: EOF",
		},
		"an identity of a later release": {
			func(f *folder) {
				f.write(identityFile, `{"version":3,"node_id":"n1","cluster_id":"c","founded":true}`)
			},
			"version 3, this release knows 1 and 2",
		},
		"an identity with a field of a later release": {
			func(f *folder) {
				f.write(identityFile, `{"version":1,"node_id":"n1","cluster_id":"c","founded":true,"zone":"b"}`)
			},
			`unknown field "zone"`,
		},
		"an identity without a cluster": {
			func(f *folder) {
				f.write(identityFile, `{"version":1,"node_id":"n1","founded":true}`)
			},
			"cluster_id is missing",
		},
		"an identity and more": {
			func(f *folder) {
				f.write(identityFile, `{"version":1,"node_id":"n1","cluster_id":"c","founded":true}{}`)
			},
			"data after the identity",
		},
		"a log that is something else": {
			func(f *folder) { f.write(filepath.Join(logDir, logMetaFile), strings.Repeat("not a log ", 10_000)) },
			"open the log",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			n := lead(t, cfg, new(ledger))
			propose(t, n, "a")
			stop(t, n)
			f := &folder{t, cfg}
			test.change(f)
			cfg = f.cfg
			got, err := Open(testContext(t), cfg, new(ledger))
			if err == nil {
				stop(t, got)
				t.Fatalf("Open succeeded, want an error with %q", test.want)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("Open = %q, want it to contain %q", err, test.want)
			}
			// Refused twice in the same words: nothing was changed and nothing holds
			// the folder.
			if _, again := Open(testContext(t), cfg, new(ledger)); again == nil || again.Error() != err.Error() {
				t.Errorf("second Open = %v, want %v", again, err)
			}
		})
	}
}

func TestOpen_badConfig(t *testing.T) {
	base := func() Config { return testConfig(t.TempDir()) }
	tests := map[string]struct {
		change func(*Config)
		want   string
	}{
		"no node id":         {func(c *Config) { c.NodeID = "" }, "node.id"},
		"long node id":       {func(c *Config) { c.NodeID = strings.Repeat("n", 65) }, "want 1 to 64"},
		"node id with slash": {func(c *Config) { c.NodeID = "../n1" }, "only letters"},
		"no data directory":  {func(c *Config) { c.DataDir = "" }, "node.data_dir is empty"},
		"negative entries":   {func(c *Config) { c.Snapshot.Entries = -1 }, "cluster.snapshot.entries -1"},
		"negative interval":  {func(c *Config) { c.Snapshot.Interval = -1 }, "cluster.snapshot.interval -1ns"},
		"several members": {func(c *Config) { c.Members = map[string]string{"n1": "127.0.0.1:1", "n2": "127.0.0.1:2"} },
			"cluster.listen is empty"},
		"a part of the files for TLS": {func(c *Config) { c.TLS.Cert = "node.pem" }, "cluster.tls needs cert, key and ca"},
		"TLS from files that are not there": {func(c *Config) {
			c.Listen, c.TLS = "127.0.0.1:0", TLSFiles{"none.pem", "none.pem", "none.pem"}
		}, "cluster.tls: open none.pem"},
		"member of another name":     {func(c *Config) { c.Members = map[string]string{"n2": "127.0.0.1:1"} }, `does not name this node, "n1"`},
		"member without a port":      {func(c *Config) { c.Members = map[string]string{"n1": "127.0.0.1"} }, "missing port"},
		"port for everybody":         {func(c *Config) { c.Listen = ":0" }, "not a loopback address"},
		"port for everybody on IPv4": {func(c *Config) { c.Listen = "0.0.0.0:0" }, "not a loopback address"},
		"no such port":               {func(c *Config) { c.Listen = "127.0.0.1:99999" }, "cluster.listen"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := base()
			test.change(&cfg)
			n, err := Open(testContext(t), cfg, new(ledger))
			if err == nil {
				stop(t, n)
				t.Fatalf("Open succeeded, want an error with %q", test.want)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("Open = %q, want it to contain %q", err, test.want)
			}
			if cfg.DataDir == "" {
				return
			}
			// A corrected configuration must work, under another name too: nothing
			// was founded.
			lead(t, Config{NodeID: "corrected", DataDir: cfg.DataDir}, new(ledger))
		})
	}
}

func TestOpen_permissions(t *testing.T) {
	cfg := testConfig(filepath.Join(t.TempDir(), "deep", "data"))
	lead(t, cfg, new(ledger))
	for path, want := range map[string]os.FileMode{
		"":                                      0o700,
		raftDir:                                 0o700,
		filepath.Join(raftDir, logDir):          0o700,
		filepath.Join(raftDir, identityFile):    0o600,
		filepath.Join(raftDir, lockFile):        0o600,
		filepath.Join("..", "data", "raft", ""): 0o700,
	} {
		info, err := os.Stat(filepath.Join(cfg.DataDir, path))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %q = %o, want %o", path, got, want)
		}
	}
}

func TestNode_Status(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Listen = "127.0.0.1:0"
	n := lead(t, cfg, new(ledger))
	propose(t, n, "a", "b")
	if err := n.Snapshot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	term, _ := n.Leadership()
	got := n.Status()
	want := Status{
		NodeID: "n1", ClusterID: got.ClusterID, Address: got.Address, Role: "leader", Term: term,
		LeaderID: "n1", LeaderAddress: got.Address,
		// configuration, no-op, barrier, a, b
		LastIndex: 5, CommitIndex: 5, AppliedIndex: 5,
		SnapshotIndex: 5, SnapshotTime: got.SnapshotTime,
		LogBytes: got.LogBytes,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if got.LogBytes == 0 || !strings.HasPrefix(got.Address, "127.0.0.1:") || time.Since(got.SnapshotTime) > patience {
		t.Errorf("status = %+v: size, address or snapshot time is wrong", got)
	}
	stop(t, n)
	if got, want := n.Status().Role, "shutdown"; got != want {
		t.Errorf("role after Close = %q, want %q", got, want)
	}
}

// TestOpen_pathIsAPattern: what is special in a pattern is not special in the
// name of a data directory.
func TestOpen_pathIsAPattern(t *testing.T) {
	cfg := testConfig(filepath.Join(t.TempDir(), "node[1]*"))
	n := lead(t, cfg, new(ledger))
	propose(t, n, "alpha")
	stop(t, n)
	leftover := (&folder{t, cfg}).path("identity.json.1" + tempSuffix)
	if err := os.WriteFile(leftover, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fsm := new(ledger)
	n = lead(t, cfg, fsm)
	stop(t, n)
	if diff := cmp.Diff([]string{"alpha"}, fsm.content()); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(leftover); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after a restart: %v, want it gone", leftover, err)
	}
}
