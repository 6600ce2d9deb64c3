package raftkv

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"

	"github.com/fxamacker/cbor/v2"
	"github.com/hashicorp/raft"
	"github.com/tidwall/btree"
)

// A snapshot is: magic, version (2 bytes), CBOR records, SHA-256 of all before.
// The records are a header, then as many of each sort as the header says, each
// sort in the order of its tree: equal states make equal bytes.
const (
	snapshotMagic = "leased raftkv snapshot\n"
	// snapshotVersion is the highest version that this release reads. A snapshot is
	// written in the lowest that can say it.
	snapshotVersion = baseVersion
	firstSnapshot   = 1
	baseVersion     = 2 // has state.base
)

// snapshotVersion returns the version in which the state is written.
func (s *state) snapshotVersion() uint16 {
	if s.base != 0 {
		return baseVersion
	}
	return firstSnapshot
}

// snapshotBuffer is how much is gathered before it is written, in bytes.
const snapshotBuffer = 1 << 20

// frozen is a state that nothing changes any more, on its way to disk.
type frozen struct {
	codec codec
	state *state
	// shift is by how much the clock of what is written is ahead of the state's, and
	// every instant on it with it.
	shift int64
}

// Snapshot freezes the state. It is O(1): entries go on being applied while the
// frozen state is written.
//
// There is none between the parts of a restore: a node that began with it would
// have some of the parts only.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if f.incoming != nil {
		return nil, errRestoring
	}
	return &frozen{codec: f.codec, state: f.freeze()}, nil
}

// Persist writes the frozen state. The sink is cancelled when that does not work
// out, so that a part of a snapshot is never taken for one.
func (f *frozen) Persist(sink raft.SnapshotSink) error {
	if err := f.write(sink); err != nil {
		return fmt.Errorf("write snapshot: %w", joinCancel(err, sink.Cancel()))
	}
	return sink.Close()
}

func joinCancel(err, cancel error) error {
	if cancel != nil {
		return fmt.Errorf("%w (and cancelling it: %w)", err, cancel)
	}
	return err
}

// Release lets go of the frozen state.
func (f *frozen) Release() { f.state = nil }

func (f *frozen) write(to io.Writer) error {
	sum := sha256.New()
	buf := bufio.NewWriterSize(io.MultiWriter(to, sum), snapshotBuffer)
	if _, err := buf.WriteString(snapshotMagic); err != nil {
		return err
	}
	if err := binary.Write(buf, binary.BigEndian, f.state.snapshotVersion()); err != nil {
		return err
	}
	if err := writeState(f.codec.enc.NewEncoder(buf), f.state, f.shift); err != nil {
		return err
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	_, err := to.Write(sum.Sum(nil))
	return err
}

func writeState(enc *cbor.Encoder, s *state, shift int64) error {
	if err := enc.Encode(headRecord{
		Now: s.now + shift, Offset: s.offset - shift, Index: s.index,
		Namespaces: s.namespaces.Len(), Keys: s.keys.Len(), Answers: s.answers.Len() + s.bulked,
	}); err != nil {
		return err
	}
	if s.snapshotVersion() >= baseVersion {
		if err := enc.Encode(s.base); err != nil {
			return err
		}
	}
	if err := each(s.namespaces, func(n *nsState) error {
		return enc.Encode(namespaceRecord{Name: n.name, Floor: n.floor})
	}); err != nil {
		return err
	}
	if err := each(s.keys, func(ks *keyState) error { return writeKey(enc, s, ks, shift) }); err != nil {
		return err
	}
	return s.eachAnswer(func(a answer) error {
		r := answerRecordOf(a)
		r.shift(shift)
		return enc.Encode(r)
	})
}

// each calls f for every item in order until f fails.
func each[T any](t *btree.BTreeG[T], f func(T) error) error {
	var err error
	t.Scan(func(item T) bool {
		err = f(item)
		return err == nil
	})
	return err
}

// Restore replaces the state by a snapshot, after its checksum and every key in
// it were found right.
func (f *FSM) Restore(from io.ReadCloser) error {
	defer from.Close()
	s, err := readSnapshot(f.codec, f.texts, from)
	if err != nil {
		// raft goes on with the log, as if there were no snapshot.
		return fmt.Errorf("raftkv: restore snapshot: %w", err)
	}
	f.giveUp() // a snapshot is never between the parts of a restore
	f.mu.Lock()
	f.state = s
	f.rings.reset(s.index)
	restored := f.restored
	f.mu.Unlock()
	if restored != nil {
		restored()
	}
	return nil
}

func readSnapshot(c codec, texts *interner, from io.Reader) (*state, error) {
	r := &summed{from: bufio.NewReaderSize(from, snapshotBuffer), sum: sha256.New()}
	head := make([]byte, len(snapshotMagic)+2)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	if string(head[:len(snapshotMagic)]) != snapshotMagic {
		return nil, fmt.Errorf("this is not a snapshot of raftkv")
	}
	v := binary.BigEndian.Uint16(head[len(snapshotMagic):])
	if v < firstSnapshot || v > snapshotVersion {
		return nil, fmt.Errorf("snapshot version %d; this release knows %d to %d", v, firstSnapshot, snapshotVersion)
	}
	return readState(c.dec.NewDecoder(r), texts, v, r)
}

// summed reads all but the last sha256.Size bytes, which are the checksum of
// what came before them.
type summed struct {
	from *bufio.Reader
	sum  hash.Hash
}

func (r *summed) Read(p []byte) (int, error) {
	ahead, err := r.from.Peek(min(len(p), r.from.Size()-sha256.Size) + sha256.Size)
	n := len(ahead) - sha256.Size
	if n <= 0 {
		if err == nil || err == io.EOF {
			return 0, io.EOF
		}
		return 0, err
	}
	n = copy(p, ahead[:n])
	r.sum.Write(p[:n])
	_, err = r.from.Discard(n)
	return n, err
}

// verify reads the checksum. Everything before it must have been read.
func (r *summed) verify() error {
	if n, _ := r.Read(make([]byte, 1)); n != 0 {
		return fmt.Errorf("there is more in the snapshot than its header says")
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(r.from, want); err != nil {
		return fmt.Errorf("checksum: %w", err)
	}
	if string(r.sum.Sum(nil)) != string(want) {
		return fmt.Errorf("the checksum is wrong: the snapshot is damaged")
	}
	return nil
}
