package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft-wal/types"
)

var errFull = fmt.Errorf("injected: %w", syscall.ENOSPC)

// fullDisk is a disk under a node that is full while a test wants it.
type fullDisk struct {
	types.VFS

	files, terms atomic.Bool // what there is no space for
	tries        atomic.Int64
}

// under puts the disk under a node's log.
func (d *fullDisk) under(cfg *Config) {
	cfg.logFiles = func(files *logFiles) {
		files.segment = 16 << 10
		d.VFS = files.vfs
		files.vfs = d
		list := files.newList
		files.newList = func() types.MetaStore { return &fullList{list(), d} }
	}
}

func (d *fullDisk) fails() bool {
	if !d.files.Load() {
		return false
	}
	d.tries.Add(1)
	return true
}

func (d *fullDisk) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if d.fails() {
		return nil, errFull
	}
	file, err := d.VFS.Create(dir, name, size)
	if err != nil {
		return nil, err
	}
	return &fullFile{file, d}, nil
}

func (d *fullDisk) OpenWriter(dir, name string) (types.WritableFile, error) {
	file, err := d.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return &fullFile{file, d}, nil
}

type fullFile struct {
	types.WritableFile

	disk *fullDisk
}

func (f *fullFile) WriteAt(b []byte, off int64) (int, error) {
	if f.disk.fails() {
		return 0, errFull
	}
	return f.WritableFile.WriteAt(b, off)
}

type fullList struct {
	types.MetaStore

	disk *fullDisk
}

func (l *fullList) SetStable(key, value []byte) error {
	if l.disk.terms.Load() {
		return errFull
	}
	return l.MetaStore.SetStable(key, value)
}

// A node alone whose disk is full refuses commands, does not elect itself again and
// again, and goes on when there is space.
func TestNode_fullDisk(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Logger = testLogger(t)
	d := new(fullDisk)
	d.under(&cfg)
	n := lead(t, cfg, new(ledger))
	defer stop(t, n)
	if _, err := n.Propose(testContext(t), []byte("before")); err != nil {
		t.Fatal(err)
	}
	term := n.Status().Term
	d.files.Store(true)
	if _, err := n.Propose(testContext(t), []byte("full")); err == nil || !strings.Contains(err.Error(), errFull.Error()) {
		t.Errorf("on a full disk: got error %v, want %v", err, errFull)
	}
	eventually(t, "the node leads no longer", func() bool { term, _ := n.Leadership(); return term == 0 })
	// It looks for space a few times and stays what it is.
	tries := d.tries.Load()
	eventually(t, "it looks for space", func() bool { return d.tries.Load() > tries+3 })
	s := n.Status()
	if s.Term > term+1 || !strings.Contains(s.LogError, errFull.Error()) {
		t.Errorf("got term %d after %d and the error %q", s.Term, term, s.LogError)
	}
	if got, _ := n.Leadership(); got != 0 {
		t.Errorf("the node leads in term %d with a full disk", got)
	}
	d.files.Store(false)
	eventually(t, "it leads again", func() bool { term, _ := n.Leadership(); return term > 0 })
	if _, err := n.Propose(testContext(t), []byte("after")); err != nil {
		t.Errorf("with space again: %v", err)
	}
	if s := n.Status(); s.LogError != "" {
		t.Errorf("with space again the log's error is %q", s.LogError)
	}
}

// A term for which there is no space is waited for: raft would panic.
func TestNode_noSpaceForTerm(t *testing.T) {
	for _, freed := range []bool{true, false} {
		t.Run(fmt.Sprintf("freed=%v", freed), func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			cfg.Logger = testLogger(t)
			d := new(fullDisk)
			d.under(&cfg)
			machine := new(ledger)
			n := lead(t, cfg, machine)
			if _, err := n.Propose(testContext(t), []byte("before")); err != nil {
				t.Fatal(err)
			}
			// Deposed by a full disk, it elects itself, for which it must store a term.
			d.terms.Store(true)
			d.files.Store(true)
			if _, err := n.Propose(testContext(t), []byte("lost")); err == nil {
				t.Fatal("a command succeeded on a full disk")
			}
			d.files.Store(false)
			eventually(t, "raft is a candidate", func() bool { return n.Status().Role == "candidate" })
			term := n.Status().Term
			ctx, cancel := context.WithTimeout(testContext(t), 3*mostTermPause)
			for ctx.Err() == nil {
				if got := n.Status().Term; got != term {
					t.Fatalf("term %d, which could not be stored, counts", got)
				}
				if got, _ := n.Leadership(); got != 0 {
					t.Fatalf("the node leads in term %d without a term", got)
				}
				<-time.After(20 * time.Millisecond)
			}
			cancel()
			if freed {
				d.terms.Store(false)
				eventually(t, "it leads again", func() bool { term, _ := n.Leadership(); return term > 0 })
				if _, err := n.Propose(testContext(t), []byte("after")); err != nil {
					t.Errorf("with space again: %v", err)
				}
			}
			stop(t, n)
			d.terms.Store(false)

			// What it told nobody is not there after a restart, and all else is.
			again := new(ledger)
			n = lead(t, cfg, again)
			if got := n.Status().Term; got <= term {
				t.Errorf("after the restart the term is %d, not above %d", got, term)
			}
			want := []string{"before"}
			if freed {
				want = append(want, "after")
			}
			// What failed may be there as well: it is not known to have failed for ever.
			got := slices.DeleteFunc(again.content(), func(s string) bool { return s == "lost" })
			if !slices.Equal(got, want) {
				t.Errorf("after the restart: got %q, want %q", got, want)
			}
			stop(t, n)
		})
	}
}

// raft's name for its term is the one that termStore waits with.
func TestTermStore_key(t *testing.T) {
	n := lead(t, testConfig(t.TempDir()), new(ledger))
	defer stop(t, n)
	stored, err := n.storage.log.GetUint64([]byte(termKey))
	if want := n.Status().Term; err != nil || stored != want {
		t.Errorf("%q in raft's store is %d, error %v, want the term %d", termKey, stored, err, want)
	}
}

// What a look for space leaves behind when the process is killed is deleted.
func TestOpenLog_deletesRoom(t *testing.T) {
	files := newLogFiles(filepath.Join(t.TempDir(), logDir), newRaftLogger(testLogger(t)))
	s, err := newLogStore(files)
	if err != nil {
		t.Fatal(err)
	}
	file, err := files.segments.vfs.Create(files.dir, roomFile, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openLog(files.dir, newRaftLogger(testLogger(t))); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	names, err := namesIn(files.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name == roomFile {
			t.Errorf("%s is still there", name)
		}
	}
}
