package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// errAbstains says that this node does not ask for votes.
var errAbstains = errors.New("this node stands for no election: its log cannot be written")

const (
	// rpcTimeout bounds one message between nodes; raft gives a snapshot more, by
	// its size. A peer that vanished without a word holds up a heartbeat that long.
	rpcTimeout = 2 * time.Second
	// redialWithin is how long it takes at most to notice that a connection is dead.
	redialWithin = heartbeatTimeout / 2
	// idleConns is how many unused connections to a peer are kept.
	idleConns = 3
	// maxEntriesBytes bounds the entries in one message, which rpcTimeout is for as a
	// whole: sending it, the write at the other end, and the answer. raft counts
	// entries only, and sends the same ones again, for ever, to a node that is reached
	// too slowly for them.
	maxEntriesBytes = 1 << 20
)

// transport is what a node needs of one of raft's.
type transport interface {
	raft.Transport
	raft.WithClose
}

// newTransport returns an in-process transport, which no peer can reach, or one
// over port. It knows nodes by their server ids only: addresses are looked up
// when a connection is made. While writable returns an error it asks for no votes;
// while moving changes a member's address it sends it no entries.
func newTransport(server raft.ServerID, port *peerPort, moving *readdressing, writable func() error, logger *raftLogger) transport {
	if port == nil {
		_, trans := raft.NewInmemTransport(raft.ServerAddress(server))
		return trans
	}
	return abstaining{redialing{moving, raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: byID{},
		Stream:                &raftStream{port, server},
		MaxPool:               idleConns,
		Timeout:               rpcTimeout,
		// 1 turns pipelining off. With it a leader whose entries a follower could not
		// store, for want of space say, may wait for itself for ever in raft v1.7.3 and
		// send that follower nothing more. One batch is on its way at a time anyway.
		MaxRPCsInFlight: 1,
		Logger:          logger,
	})}, writable}
}

// byID makes raft hand the id of a server, instead of the address in its
// configuration, to whoever dials.
type byID struct{}

// ServerAddr implements raft.ServerAddressProvider.
func (byID) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	return raft.ServerAddress(id), nil
}

// redialing is raft's transport, which sends a message on a connection that it has
// kept, also when the process at the other end has been started again meanwhile.
// Messages on which an election or the handing over of leadership depends, and
// that do the same when they come twice, are sent again then: without that a
// leader that stops right after another node was started goes without a successor.
type redialing struct {
	moving *readdressing
	*raft.NetworkTransport
}

var (
	_ transport        = redialing{}
	_ raft.WithPreVote = redialing{}
)

// AppendEntries implements raft.Transport. raft reads in q how far it came, and sends
// the rest next.
func (t redialing) AppendEntries(id raft.ServerID, target raft.ServerAddress, q *raft.AppendEntriesRequest, a *raft.AppendEntriesResponse) error {
	return t.moving.send(id, target, q, func() error { return t.NetworkTransport.AppendEntries(id, target, q, a) })
}

// InstallSnapshot implements raft.Transport.
func (t redialing) InstallSnapshot(
	id raft.ServerID, target raft.ServerAddress, q *raft.InstallSnapshotRequest, a *raft.InstallSnapshotResponse, data io.Reader,
) error {
	t.moving.came(id, target)
	return t.NetworkTransport.InstallSnapshot(id, target, q, a, data)
}

// bound cuts the entries of q, all but the first, to maxEntriesBytes.
//
// The follower may then have entries behind those in q that the leader does not have.
// raft takes all that it has up to q's commit index for committed, so that may not be
// beyond the entries which q compares.
func bound(q *raft.AppendEntriesRequest) {
	size := 0
	for i, e := range q.Entries {
		size += len(e.Data) + len(e.Extensions)
		if i > 0 && size > maxEntriesBytes {
			q.Entries = q.Entries[:i]
			break
		}
	}
	q.LeaderCommitIndex = min(q.LeaderCommitIndex, q.PrevLogEntry+uint64(len(q.Entries)))
}

// TimeoutNow implements raft.Transport.
func (t redialing) TimeoutNow(id raft.ServerID, target raft.ServerAddress, q *raft.TimeoutNowRequest, a *raft.TimeoutNowResponse) error {
	return redial(func() error { return t.NetworkTransport.TimeoutNow(id, target, q, a) })
}

// RequestVote implements raft.Transport.
func (t redialing) RequestVote(id raft.ServerID, target raft.ServerAddress, q *raft.RequestVoteRequest, a *raft.RequestVoteResponse) error {
	return redial(func() error { return t.NetworkTransport.RequestVote(id, target, q, a) })
}

// RequestPreVote implements raft.WithPreVote.
func (t redialing) RequestPreVote(
	id raft.ServerID, target raft.ServerAddress, q *raft.RequestPreVoteRequest, a *raft.RequestPreVoteResponse,
) error {
	return redial(func() error { return t.NetworkTransport.RequestPreVote(id, target, q, a) })
}

// redial sends again for as long as there can be kept connections that are dead.
// What was sent on one tells so at once: later, it was this node that closed it
// because the message took too long, see transfer.
func redial(send func() error) error {
	begin := time.Now()
	err := send()
	for range idleConns {
		if !isDead(err) || time.Since(begin) > redialWithin {
			break
		}
		err = send()
	}
	return err
}

// isDead tells that a connection had been closed at the other end.
func isDead(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// abstaining is the transport of a node that does not ask for votes while it
// cannot write its log: it would be elected, fail to write, step down, and be
// elected again. It votes for others.
type abstaining struct {
	redialing

	writable func() error // why it cannot, or nil
}

var (
	_ transport        = abstaining{}
	_ raft.WithPreVote = abstaining{}
)

// RequestVote implements raft.Transport.
func (t abstaining) RequestVote(id raft.ServerID, target raft.ServerAddress, q *raft.RequestVoteRequest, a *raft.RequestVoteResponse) error {
	if err := t.writable(); err != nil {
		return fmt.Errorf("%w: %w", errAbstains, err)
	}
	return t.redialing.RequestVote(id, target, q, a)
}

// RequestPreVote implements raft.WithPreVote.
func (t abstaining) RequestPreVote(
	id raft.ServerID, target raft.ServerAddress, q *raft.RequestPreVoteRequest, a *raft.RequestPreVoteResponse,
) error {
	if err := t.writable(); err != nil {
		return fmt.Errorf("%w: %w", errAbstains, err)
	}
	return t.redialing.RequestPreVote(id, target, q, a)
}

var _ raft.StreamLayer = (*raftStream)(nil)

// raftStream is the part of the peer port that raft sees.
type raftStream struct {
	port *peerPort
	self raft.ServerID
}

// Dial implements raft.StreamLayer. The address is a server id, see byID.
func (s *raftStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.port.dial(ctx, protoRaft, string(address))
}

// Accept implements net.Listener.
func (s *raftStream) Accept() (net.Conn, error) {
	select {
	case c := <-s.port.raft:
		return c, nil
	case <-s.port.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *raftStream) Close() error { return s.port.Close() }

// Addr implements net.Listener. raft tells it to others as the leader's address.
func (s *raftStream) Addr() net.Addr { return serverAddr(s.self) }

// serverAddr is a server id where an address is asked for.
type serverAddr raft.ServerID

// Network implements net.Addr.
func (serverAddr) Network() string { return "server id" }

// String implements net.Addr.
func (a serverAddr) String() string { return string(a) }
