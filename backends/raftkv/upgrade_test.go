package raftkv

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"leased/contract"
)

// What releases left on disk, a folder each: the log, a snapshot and a backup from
// after half of it, and the state there and at the end, in words. A folder is
// written once, by LEASED_UPDATE_GOLDEN while it is not there, and is never changed
// after its release: a release that writes something else gets a folder of its own.
const releases = "testdata/releases"

// currentRelease is the folder of what this release writes.
const currentRelease = "2"

// TestUpgrade holds that what a release left on disk is read as it was meant: a
// field that is read as another, or means something else, makes another state.
func TestUpgrade(t *testing.T) {
	if dir := filepath.Join(releases, currentRelease); os.Getenv("LEASED_UPDATE_GOLDEN") != "" && os.MkdirAll(releases, 0o755) == nil {
		if os.Mkdir(dir, 0o755) == nil {
			writeRelease(t, dir)
		}
	}
	folders, err := os.ReadDir(releases)
	if err != nil || len(folders) == 0 {
		t.Fatalf("%d releases, error %v", len(folders), err)
	}
	for _, folder := range folders {
		t.Run(folder.Name(), func(t *testing.T) {
			dir := filepath.Join(releases, folder.Name())
			logs := readLogs(t, filepath.Join(dir, "log.txt"))
			half := len(logs) / 2
			halfway, end := string(golden(t, dir, "halfway.txt")), string(golden(t, dir, "end.txt"))
			check := func(what, want string, s *state) {
				t.Helper()
				if diff := cmp.Diff(want, stateText(t, s)); diff != "" {
					t.Errorf("%s: the state is another (-then +now):\n%s", what, diff)
				}
				checkInvariants(t, s)
			}

			fsm := NewFSM()
			fsm.ApplyBatch(logs[:half])
			check("half of the log", halfway, fsm.state)
			fsm.ApplyBatch(logs[half:])
			check("the log", end, fsm.state)

			fsm = NewFSM()
			if err := fsm.Restore(io.NopCloser(bytes.NewReader(golden(t, dir, "snapshot")))); err != nil {
				t.Fatal(err)
			}
			check("the snapshot", halfway, fsm.state)
			fsm.ApplyBatch(logs[half:])
			check("the snapshot and the rest of the log", end, fsm.state)

			head, s, err := readBackup(newCodec(), newWire(), bytes.NewReader(golden(t, dir, "backup")))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&BackupHead{ClusterID: "the-cluster", Index: s.index, Time: backupTime()}, head); diff != "" {
				t.Errorf("the backup's head (-then +now):\n%s", diff)
			}
			check("the backup", halfway, s)
		})
	}
}

// TestUpgrade_current holds that this release writes what its folder has, and that
// the folder has all that it can write.
func TestUpgrade_current(t *testing.T) {
	dir := filepath.Join(releases, currentRelease)
	logs := readLogs(t, filepath.Join(dir, "log.txt"))
	c := newCodec()
	said, can := map[string]bool{}, map[string]bool{}
	for i, l := range logs {
		h, body, err := c.decode(l.Data)
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.encode(h, body)
		if err != nil || !bytes.Equal(again, l.Data) {
			t.Errorf("entry %d is written %x, error %v; it was %x", i+1, again, err, l.Data)
		}
		fields(said, fmt.Sprintf("kind %d", h.kind), reflect.ValueOf(body), false)
	}
	for k := kind(1); newBody(k) != nil; k++ {
		fields(can, fmt.Sprintf("kind %d", k), reflect.ValueOf(newBody(k)), true)
	}
	if diff := cmp.Diff(can, said); diff != "" {
		t.Errorf("no entry of the log says something in these fields:\n%s", diff)
	}
	fsm := NewFSM()
	fsm.ApplyBatch(logs[:len(logs)/2])
	if !bytes.Equal(snapshotBytes(t, fsm), golden(t, dir, "snapshot")) {
		t.Error("the snapshot is written with other bytes than before: other releases have to read it, see DESIGN.md")
	}
}

// fields adds the paths of the fields of a body that are not zero, or of all.
func fields(to map[string]bool, path string, v reflect.Value, all bool) {
	switch v.Kind() {
	case reflect.Pointer:
		fields(to, path, v.Elem(), all)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fields(to, path+"."+f.Name, v.Field(i), all)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			if all {
				fields(to, path, reflect.New(v.Type().Elem()), all)
			}
			for i := range v.Len() {
				fields(to, path, v.Index(i), all)
			}
			return
		}
		fallthrough
	default:
		if all || !v.IsZero() {
			to[path] = true
		}
	}
}

func golden(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readLogs reads entries: term and data in each line.
func readLogs(t *testing.T, file string) []*raft.Log {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var logs []*raft.Log
	for lines := bufio.NewScanner(f); lines.Scan(); {
		l := &raft.Log{Type: raft.LogCommand, Index: uint64(len(logs) + 1)}
		var text string
		if _, err := fmt.Sscanf(lines.Text(), "%d %s", &l.Term, &text); err != nil {
			t.Fatalf("%s:%d: %v", file, l.Index, err)
		}
		if l.Data, err = hex.DecodeString(text); err != nil {
			t.Fatalf("%s:%d: %v", file, l.Index, err)
		}
		logs = append(logs, l)
	}
	if len(logs) < 2 {
		t.Fatalf("%s has %d entries", file, len(logs))
	}
	return logs
}

func backupTime() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC) }

// stateText returns the whole state, a record in each line.
func stateText(t *testing.T, s *state) string {
	t.Helper()
	var b bytes.Buffer
	if err := writeState(newCodec().enc.NewEncoder(&b), s, 0); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for rest := b.Bytes(); len(rest) > 0; {
		text, next, err := cbor.DiagnoseFirst(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = next
		lines.WriteString(text + "\n")
	}
	return lines.String()
}

// writeRelease writes the folder of a release.
func writeRelease(t *testing.T, dir string) {
	t.Helper()
	d := newDriver(t)
	var logs []*raft.Log
	var text strings.Builder
	apply := func(e entry) any {
		l := d.log(e)
		logs = append(logs, l)
		fmt.Fprintf(&text, "%d %x\n", l.Term, l.Data)
		return d.fsm.Apply(l)
	}
	for _, command := range oneOfEach() {
		k, body := command(d.fsm.state)
		apply(entry{term: 1, header: header{kind: k, term: 1, now: int64(len(logs)+1) * int64(time.Second)}, body: body})
	}
	w := newWorkload(7)
	w.now = int64(len(logs)) * int64(time.Second)
	for len(logs) < 160 {
		e := w.next()
		w.saw(e, apply(e))
	}

	half := NewFSM()
	half.ApplyBatch(logs[:len(logs)/2])
	var backup bytes.Buffer
	head := &BackupHead{ClusterID: "the-cluster", Index: half.index(), Time: backupTime()}
	err := writeBackup(newWire(), head, &frozen{codec: half.codec, state: half.freeze()}, &backup)
	for name, content := range map[string][]byte{
		"log.txt": []byte(text.String()), "snapshot": snapshotBytes(t, half), "backup": backup.Bytes(),
		"halfway.txt": []byte(stateText(t, half.state)), "end.txt": []byte(stateText(t, d.fsm.state)),
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// oneOfEach returns commands of each kind in which every field says something.
func oneOfEach() []func(*state) (kind, any) {
	keep := retention{Idempotency: int64(time.Minute), History: int64(time.Hour), HistoryPerKey: 5}
	acquire := func(id, key string) *acquireCmd {
		r := request(key, "alice", id)
		r.Key.Program, r.Key.Workflow, r.Key.Operation = "recon", "nightly", "scan"
		r.ExecutionID, r.JobID, r.TraceID, r.Wait = "execution", "job", "trace", time.Second
		r.Metadata = map[string]string{"a": "1", "b": "2"}
		r.Limits = contract.Limits{LeasesPerOwner: 30, WaitersPerKey: 20}
		c := commandOf(r)
		c.Keep, c.Nonce = keep, [16]byte([]byte(fmt.Sprintf("%-16s", id)))
		return c
	}
	held := func(s *state, key string) *lease {
		return s.key(&ident{ns: "default", id: acquire("", key).KeyID}).active
	}
	plain := func(k kind, body any) func(*state) (kind, any) { return func(*state) (kind, any) { return k, body } }
	fingerprint := contract.Fingerprint{7, 8, 9}
	bob := acquire("bob", "released")
	bob.Owner, bob.Scope = "bob", contract.Scope{3}
	restored := newState()
	restored.index = 5001
	restored.namespaces.Set(&nsState{name: "restored", floor: 77})
	var whole bytes.Buffer
	if err := (&frozen{codec: newCodec(), state: restored}).write(&whole); err != nil {
		panic(err)
	}
	id := [16]byte{1, 2, 3}
	return []func(*state) (kind, any){
		plain(kindTakeover, &takeoverCmd{Wall: 1767323045 * int64(time.Second)}),
		plain(kindRestore, &restoreCmd{ID: id, Above: 5000}),
		plain(kindRestore, &restoreCmd{ID: id, Part: 1, Data: whole.Bytes()}),
		plain(kindRestore, &restoreCmd{ID: id, Part: 2, End: restoreDone, Floor: 9000}),
		plain(kindRestore, &restoreCmd{ID: id, Part: 3, End: restoreGivenUp}),
		plain(kindFloor, &floorCmd{Namespace: "default", Above: 20000}),
		plain(kindAcquire, acquire("a", "released")),
		plain(kindAcquire, acquire("b", "revoked")),
		plain(kindAcquire, acquire("c", "kept")),
		plain(kindAcquire, bob), // waits
		func(s *state) (kind, any) {
			return kindAway, &awayCmd{Items: []awayItem{{Namespace: "default", KeyID: bob.KeyID, Scope: bob.Scope, Attach: s.index, Undo: true}}}
		},
		func(s *state) (kind, any) {
			l := held(s, "kept")
			return kindRenew, &renewCmd{Namespace: l.ns, Owner: l.owner, Instance: l.instance, RequestID: "d", TraceID: "trace d", Keep: keep,
				Items: []renewItem{{Scope: contract.Scope{4}, Print: fingerprint, LeaseID: l.leaseID(), Token: l.token, TTL: int64(time.Minute)}}}
		},
		func(s *state) (kind, any) {
			l := held(s, "released")
			return kindRelease, &releaseCmd{Scope: contract.Scope{5}, Print: fingerprint, Namespace: l.ns, Owner: l.owner, Instance: l.instance,
				RequestID: "e", TraceID: "trace e", LeaseID: l.leaseID(), Token: l.token, Keep: keep}
		},
		func(s *state) (kind, any) {
			l := held(s, "revoked")
			return kindRevoke, &revokeCmd{Scope: contract.Scope{6}, Print: fingerprint, Namespace: l.ns, Principal: "boss", RequestID: "f", TraceID: "trace f",
				LeaseID: l.leaseID(), Reason: "because", Keep: keep}
		},
		plain(kindSweep, &sweepCmd{Wall: 1767323045*int64(time.Second) + int64(time.Minute), Max: 100}),
	}
}
