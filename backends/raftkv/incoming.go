package raftkv

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"

	"leased/contract"
)

// errRestoring is why there is no snapshot between the parts of a restore.
var errRestoring = errors.New("raftkv: a backup is being restored")

// errGivenUp ends the reading of a state that will not come whole.
var errGivenUp = errors.New("raftkv: the restore was given up")

// incoming is the state of a backup on its way in through the log. It is read
// beside the state that serves, while its parts come, and takes that one's place
// with the last part: on every node in the same entry, or on none.
//
// Which parts the log has, and in which order, decides alone what becomes of it. How
// far the reading has come differs between nodes, so nothing is answered by it
// before the last part.
type incoming struct {
	id   [16]byte
	term uint64 // of the leader that sends the parts
	next uint32
	to   *io.PipeWriter

	done  chan struct{} // closed when the rest is set
	state *state
	texts *interner
	err   error
}

func newIncoming(c codec, id [16]byte, term uint64) *incoming {
	from, to := io.Pipe()
	in := &incoming{id: id, term: term, next: 1, to: to, done: make(chan struct{}), texts: newInterner()}
	go func() {
		defer close(in.done)
		in.state, in.err = readSnapshot(c, in.texts, from)
		_ = from.CloseWithError(in.err) // parts that come after an error are not waited for
	}()
	return in
}

// restoreReply is what Apply answers to a part of a restore.
type restoreReply struct {
	taken bool
	index uint64 // of the entry, as the state counts
	floor uint64 // the last part: what every later token is higher than
	err   error  // the last part: why the state is not replaced
}

// applyRestore carries out an entry that is a part of a restore. A part is taken
// only in the term in which it was made, and if it is the next one: whatever else
// happened, the restore is not whole, and nothing comes of it.
func (f *FSM) applyRestore(l *raft.Log, h header, c *restoreCmd) restoreReply {
	ours := h.term == l.Term
	f.mu.Lock()
	s := f.state
	s.reach(l.Index, l.Term, h)
	if ours && c.Part == 0 && c.End == restoreGoesOn && s.index <= c.Above {
		s.base += c.Above + 1 - s.index
		s.index = l.Index + s.base
	}
	f.rings.append(nil, s.index)
	f.mu.Unlock()
	out := restoreReply{index: s.index}

	switch in := f.incoming; {
	case !ours:
	case c.End == restoreGivenUp:
		if in != nil && in.id == c.ID {
			f.giveUp()
		}
		out.taken = true
	case c.Part == 0:
		f.giveUp()
		f.incoming = newIncoming(f.codec, c.ID, l.Term)
		f.restoring.Store(true)
		out.taken = true
	case in == nil || in.id != c.ID:
	case in.term != l.Term || in.next != c.Part:
		f.giveUp()
	case c.End == restoreDone:
		out.taken = true
		out.floor, out.err = f.finish(c.Floor)
	default:
		_, _ = in.to.Write(c.Data) // an error is the reader's, which the last part answers
		in.next++
		out.taken = true
	}
	return out
}

// finish makes the incoming state the state.
func (f *FSM) finish(above uint64) (floor uint64, err error) {
	in := f.incoming
	f.incoming = nil
	f.restoring.Store(false)
	_ = in.to.Close()
	<-in.done
	if in.err != nil {
		return 0, in.err
	}
	f.mu.Lock()
	before, s := f.state, in.state
	s.now, s.offset = max(s.now, before.now), before.offset
	s.index, s.base = before.index, before.base
	floor = s.raiseFloors(before, above)
	f.state, f.texts = s, in.texts
	f.rings.reset(s.index)
	restored := f.restored
	f.mu.Unlock()
	if restored != nil {
		restored()
	}
	return floor, nil
}

// Close ends the reading of a state that will not come whole. Whoever applied entries
// has ended.
func (f *FSM) Close() error {
	f.giveUp()
	return nil
}

// giveUp forgets the state that is on its way in.
func (f *FSM) giveUp() {
	if f.incoming == nil {
		return
	}
	_ = f.incoming.to.CloseWithError(errGivenUp)
	f.incoming = nil
	f.restoring.Store(false)
}

// SnapshotBlocked tells that no snapshot can be taken now: a backup is being
// restored.
func (f *FSM) SnapshotBlocked() bool { return f.restoring.Load() }

// raiseFloors makes every later token of every namespace, known or not, higher
// than all that s or before granted in it and than above, and returns what they are
// all higher than. s has taken the place of before at its index, which is higher
// than that of any entry in which either granted.
//
// One namespace's floor is nothing to another: it may be near the end of the tokens.
func (s *state) raiseFloors(before *state, above uint64) uint64 {
	least := max(above, s.index) - s.index
	names := []string{anyNamespace}
	for _, of := range []*state{s, before} {
		of.namespaces.Scan(func(n *nsState) bool {
			names = append(names, n.name)
			return true
		})
	}
	raised := make([]*nsState, len(names))
	for i, name := range names {
		n := *s.namespace(name)
		n.name, n.floor = name, max(least, n.floor, before.namespace(name).floor)
		raised[i] = &n
	}
	for _, n := range raised {
		s.namespaces.Set(n)
	}
	return raised[0].floor + s.index
}

// endAll ends every lease and forgets every place in a queue.
func (s *state) endAll() (ended int64) {
	st := step{state: s}
	var places []*waiter
	s.queue.Scan(func(w *waiter) bool { places = append(places, w); return true })
	for _, w := range places {
		ks := *st.key(w.ident)
		st.removePlace(&ks, w)
		st.putKey(&ks)
	}
	var held []*ident
	s.keys.Scan(func(ks *keyState) bool {
		if ks.active != nil {
			held = append(held, ks.ident)
		}
		return true
	})
	for _, id := range held {
		ks := *st.key(id)
		l := *ks.active
		// What is displayed as its end is not to lie in the future.
		l.nominal = min(l.nominal, st.wall())
		ks.active = &l
		st.end(&ks, ending{state: contract.StateExpired, reason: restoredReason}, 0)
	}
	return int64(len(held))
}
