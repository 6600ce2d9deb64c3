package raftkv

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"leased/contract"
)

// A backup is: magic, version (2 bytes), the length of the head (4 bytes) and the
// head in CBOR, a snapshot, and the SHA-256 of all before.
const (
	backupMagic   = "leased backup\n"
	backupVersion = 1
	maxBackupHead = 1 << 16
)

// BackupHead says what a backup is of.
type BackupHead struct {
	_         struct{} `cbor:",toarray"`
	ClusterID string
	// Index is the entry after which the state was as in the backup.
	Index uint64
	// Time is when the backup was made, by the clock of the node that made it.
	Time time.Time
}

// Backup returns the head of a backup of the state as it is now, and what writes
// that backup. The state is at least as new as the call: the node that leads says
// how far this one must be.
func (f *Forwarder) Backup(ctx context.Context, clusterID string) (*BackupHead, func(io.Writer) error, error) {
	valid := func() error { return nil }
	index, err := begin(ctx, valid, read(f, "index", new(none), f.local.index))
	if err != nil {
		return nil, nil, err
	}
	e := f.engine
	if !e.fsm.reaches(ctx, index) {
		return nil, nil, contract.Errorf(contract.CodeUnavailable, context.Cause(ctx), "this node is behind the one that leads; ask another")
	}
	frozen := &frozen{codec: e.fsm.codec, state: e.fsm.freeze()}
	head := &BackupHead{ClusterID: clusterID, Index: frozen.state.index, Time: e.wall().UTC().Truncate(time.Millisecond)}
	return head, func(to io.Writer) error { return writeBackup(e.wire, head, frozen, to) }, nil
}

// index returns the newest entry of the state, which is not stale.
func (s *Store) index(ctx context.Context, _ *none) (uint64, error) {
	ctx, end, err := s.handle.Begin(ctx, func() error { return nil })
	if err != nil {
		return 0, err
	}
	defer end()
	var index uint64
	err = s.engine.read(ctx, func(*state, int64) bool { return false }, func(st *state, _ int64) { index = st.index })
	return index, err
}

func writeBackup(w wire, head *BackupHead, state *frozen, to io.Writer) error {
	sum := sha256.New()
	both := io.MultiWriter(to, sum)
	text, err := w.encode(head)
	if err != nil {
		return err
	}
	start := binary.BigEndian.AppendUint16([]byte(backupMagic), backupVersion)
	start = binary.BigEndian.AppendUint32(start, uint32(len(text)))
	if _, err := both.Write(append(start, text...)); err != nil {
		return err
	}
	if err := state.write(both); err != nil {
		return err
	}
	_, err = to.Write(sum.Sum(nil))
	return err
}

// readBackup reads a backup whole. Its clock is that of the cluster it is of.
func readBackup(c codec, w wire, from io.Reader) (*BackupHead, *state, error) {
	r := &summed{from: bufio.NewReaderSize(from, snapshotBuffer), sum: sha256.New()}
	start := make([]byte, len(backupMagic)+2+4)
	if _, err := io.ReadFull(r, start); err != nil || string(start[:len(backupMagic)]) != backupMagic {
		return nil, nil, fmt.Errorf("this is not a backup of leased")
	}
	if v := binary.BigEndian.Uint16(start[len(backupMagic):]); v != backupVersion {
		return nil, nil, fmt.Errorf("the backup has version %d; this release knows %d", v, backupVersion)
	}
	length := binary.BigEndian.Uint32(start[len(backupMagic)+2:])
	if length > maxBackupHead {
		return nil, nil, fmt.Errorf("the backup's head is damaged")
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, nil, fmt.Errorf("the backup ends in its head")
	}
	head := new(BackupHead)
	if err := w.answers.Unmarshal(text, head); err != nil {
		return nil, nil, fmt.Errorf("the backup's head is damaged: %w", err)
	}
	s, err := readSnapshot(c, newInterner(), r)
	if err != nil {
		return nil, nil, err
	}
	if err := r.verify(); err != nil {
		return nil, nil, err
	}
	if err := s.inBounds(); err != nil {
		return nil, nil, err
	}
	return head, s, nil
}

// inBounds tells whether there can be tokens above those of the state: its indices
// and floors are added to those of another one.
func (s *state) inBounds() error {
	const most = uint64(contract.MaxToken)
	if s.index > most {
		return fmt.Errorf("the backup is of log entry %d: no token is above that", s.index)
	}
	return each(s.namespaces, func(n *nsState) error {
		if n.floor > most {
			return fmt.Errorf("the floor of namespace %q is %d: no token is above that", n.name, n.floor)
		}
		return nil
	})
}
