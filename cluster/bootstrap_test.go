package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOpen_firstStartCutShort starts on what a first start leaves behind that is
// killed at each of its steps.
func TestOpen_firstStartCutShort(t *testing.T) {
	const unfounded = `{"version":1,"node_id":"n1","cluster_id":"kept","founded":false}`
	tests := map[string]struct {
		left func(f *folder)
		// clusterID is what the node must take over; empty for any.
		clusterID string
	}{
		"the folder": {func(f *folder) {
			f.write("a file", "")
			f.remove("a file")
		}, ""},
		"the lock": {func(f *folder) { f.write(lockFile, "123\n") }, ""},
		"half an identity under its temporary name": {func(f *folder) {
			f.write(identityFile+".123"+tempSuffix, unfounded[:20])
		}, ""},
		"the identity": {func(f *folder) { f.write(identityFile, unfounded) }, "kept"},
		"an empty log": {func(f *folder) {
			f.write(identityFile, unfounded)
			f.write(filepath.Join(logDir, logMetaFile), "")
		}, "kept"},
		"a part of a log": {func(f *folder) {
			f.write(identityFile, unfounded)
			f.write(filepath.Join(logDir, logMetaFile), string(make([]byte, 4096)))
		}, "kept"},
		"a log without anything": {func(f *folder) {
			f.write(identityFile, unfounded)
			f.writeLog(func(*logStore) error { return nil })
		}, "kept"},
		// The trap: this counts as existing state, but there is no configuration, so
		// raft would neither found a cluster nor stand for election, for ever.
		"the term without the configuration": {func(f *folder) {
			f.write(identityFile, unfounded)
			f.writeLog(func(s *logStore) error { return s.SetUint64([]byte("CurrentTerm"), 1) })
		}, "kept"},
		"everything but the mark that it is complete": {func(f *folder) {
			stop(f.t, lead(f.t, f.cfg, new(ledger)))
			f.write(identityFile, unfounded)
		}, "kept"},
		"an unfinished snapshot": {func(f *folder) {
			stop(f.t, lead(f.t, f.cfg, new(ledger)))
			f.write(filepath.Join(snapshotDir, "2-10-1700000000000"+tempSuffix, "state.bin"), "half")
		}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(filepath.Join(t.TempDir(), "data"))
			test.left(&folder{t, cfg})
			n := lead(t, cfg, new(ledger))
			propose(t, n, "a")
			id := n.Status().ClusterID
			if test.clusterID != "" && id != test.clusterID {
				t.Errorf("cluster id = %q, want the one that was written, %q", id, test.clusterID)
			}
			stop(t, n)
			if temps, err := filepath.Glob(filepath.Join(cfg.DataDir, raftDir, "*"+tempSuffix)); err != nil || len(temps) > 0 {
				t.Errorf("left over: %v, %v", temps, err)
			}
			if temps, err := filepath.Glob(filepath.Join(cfg.DataDir, raftDir, snapshotDir, "*"+tempSuffix)); err != nil || len(temps) > 0 {
				t.Errorf("left over: %v, %v", temps, err)
			}

			fsm := new(ledger)
			n = lead(t, cfg, fsm)
			if diff := cmp.Diff([]string{"a"}, fsm.content()); diff != "" {
				t.Errorf("after a restart (-want +got):\n%s", diff)
			}
			if got := n.Status().ClusterID; got != id {
				t.Errorf("cluster id after a restart = %q, want %q", got, id)
			}
		})
	}
}

// TestReplaceFile_failure: the old content stays, and no temporary file.
func TestReplaceFile_failure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "identity.json")
	if err := os.Mkdir(path, 0o700); err != nil { // a rename over a folder fails
		t.Fatal(err)
	}
	if err := replaceFile(path, []byte("new")); err == nil {
		t.Error("replaceFile over a folder succeeded")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files after a failure: %v, %v, want the old one alone", entries, err)
	}
}
