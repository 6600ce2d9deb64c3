package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// readdressLimit bounds how long a member gets no entries because its address is
	// being changed. Raft may be given the change much later than it was asked for.
	readdressLimit = 3 * rpcTimeout
	// readdressPause is between two messages that leave out entries which raft has.
	readdressPause = time.Millisecond
)

// readdressing leaves the entries out of what is sent to a member while its address in
// raft's configuration changes.
//
// raft v1.7.3 reads a member's id without the lock that it has for it, after each
// message with entries that the member stored; when the address changes it writes id
// and address together. The id is the same before and after, so that only the race
// detector minds, which is reason enough: a program with a known race cannot be
// searched for others. Without entries raft does not look; it sends them again.
type readdressing struct {
	mu      sync.Mutex
	members map[raft.ServerID]*readdressed // of all that messages were sent to
}

// readdressed is what is known of one member.
type readdressed struct {
	// looks is open from when raft is told that entries were stored until it comes with
	// the next message, having read the id.
	looks chan struct{}
	// target is the address that the member gets, "" for none; raft names it as soon as
	// the change is made.
	target raft.ServerAddress
	until  time.Time
}

func newReaddressing() *readdressing {
	return &readdressing{members: make(map[raft.ServerID]*readdressed)}
}

// member returns what is known of id. r.mu is held.
func (r *readdressing) member(id raft.ServerID) *readdressed {
	m := r.members[id]
	if m == nil {
		m = new(readdressed)
		r.members[id] = m
	}
	return m
}

// begin keeps entries back from id until it has the address target, or readdressLimit
// is over. It returns when raft does not read id any more; if raft does not come, it
// has nothing to send or leads no longer.
func (r *readdressing) begin(ctx context.Context, id raft.ServerID, target raft.ServerAddress) {
	r.mu.Lock()
	m := r.member(id)
	m.target, m.until = target, time.Now().Add(readdressLimit)
	looks := m.looks
	r.mu.Unlock()
	if looks == nil {
		return
	}
	over := time.NewTimer(rpcTimeout)
	defer over.Stop()
	select {
	case <-looks:
	case <-over.C:
	case <-ctx.Done():
	}
}

// abort is the end of a change to target that was not made.
func (r *readdressing) abort(id raft.ServerID, target raft.ServerAddress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.member(id); m.target == target {
		m.target = ""
	}
}

// came tells that raft has a message for id, which it takes to be at target.
func (r *readdressing) came(id raft.ServerID, target raft.ServerAddress) (held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.member(id)
	if m.looks != nil {
		close(m.looks)
		m.looks = nil
	}
	if m.target == target || m.target != "" && time.Now().After(m.until) {
		m.target = ""
	}
	return m.target != ""
}

// stored tells that id has the entries of a message, and whether raft may know it.
func (r *readdressing) stored(id raft.ServerID) (held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.member(id)
	if m.target != "" {
		return true
	}
	m.looks = make(chan struct{})
	return false
}

// send sends q, or what may be sent of it.
func (r *readdressing) send(id raft.ServerID, target raft.ServerAddress, q *raft.AppendEntriesRequest, send func() error) error {
	if q.PrevLogEntry == 0 && len(q.Entries) == 0 {
		return send() // a heartbeat, which raft sends beside its entries
	}
	if r.came(id, target) && len(q.Entries) > 0 {
		q.Entries = nil
		<-time.After(readdressPause) // raft comes again at once
	}
	bound(q)
	if err := send(); err != nil {
		return err
	}
	if len(q.Entries) > 0 && r.stored(id) {
		q.Entries = nil
	}
	return nil
}
