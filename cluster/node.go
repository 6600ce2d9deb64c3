package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// maxNodeID is in bytes; node ids are printed in each line of a status.
const maxNodeID = 64

// Config says what a node is. The zero value of each field but NodeID and
// DataDir is usable.
type Config struct {
	// NodeID names the node for ever, also when its address changes. 1 to 64
	// letters, digits, dots, hyphens and underscores.
	NodeID string
	// DataDir is the node's folder. The node owns what is in its subfolder raft.
	DataDir string
	// Listen is the host and port for peers, for raft and for calls alike. Empty:
	// there is no peer port, and the node cannot be joined by others. Off loopback
	// TLS is required.
	Listen string
	// Members is node id → host:port of the nodes that form the cluster, this one
	// included, at the first start. Later it is where else a node is looked for
	// than at the addresses that the cluster knows. This node's own entry is what
	// it tells others; without one it tells the address it listens on. Empty: this
	// node alone.
	Members map[string]string
	// TLS secures and authenticates connections between nodes. The zero value is
	// plain TCP, on loopback only.
	TLS TLSFiles
	// Dial, if set, makes the connections to peers in place of a net.Dialer. Tests
	// cut and slow connections with it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// CommandVersion is the highest version of a command that the FSM applies. Other
	// nodes are told, see Applies; 0 means 1.
	CommandVersion int
	// Snapshot says when a snapshot is taken on its own.
	Snapshot SnapshotConfig
	// logFiles, if set, may change the files of the log before it is opened; for
	// tests.
	logFiles func(*logFiles)
	// Logger gets what the node and raft report. Nil: nobody does.
	Logger *slog.Logger
}

// complete checks c and fills in its defaults.
func (c Config) complete() (Config, error) {
	if err := checkNodeID(c.NodeID); err != nil {
		return c, fmt.Errorf("node.id %w", err)
	}
	if err := c.checkPeers(); err != nil {
		return c, err
	}
	if c.DataDir == "" {
		return c, errors.New("node.data_dir is empty")
	}
	if c.Snapshot.Interval < 0 {
		return c, fmt.Errorf("cluster.snapshot.interval %s: want a positive duration", c.Snapshot.Interval)
	}
	if c.Snapshot.Entries < 0 {
		return c, fmt.Errorf("cluster.snapshot.entries %d: want a positive number", c.Snapshot.Entries)
	}
	if c.Snapshot.Interval == 0 {
		c.Snapshot.Interval = defaultSnapshotInterval
	}
	if c.Snapshot.Entries == 0 {
		c.Snapshot.Entries = defaultSnapshotEntries
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func checkNodeID(id string) error {
	if id == "" || len(id) > maxNodeID {
		return fmt.Errorf("%q: want 1 to %d characters", id, maxNodeID)
	}
	for _, r := range id {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
		default:
			return fmt.Errorf("%q: only letters, digits, dots, hyphens and underscores are allowed", id)
		}
	}
	return nil
}

func (c Config) checkPeers() error {
	if err := c.TLS.check(); err != nil {
		return err
	}
	if len(c.Members) == 0 {
		return nil
	}
	if _, ok := c.Members[c.NodeID]; !ok {
		return fmt.Errorf("cluster.members does not name this node, %q", c.NodeID)
	}
	if len(c.Members) > 1 && c.Listen == "" {
		return errors.New("cluster.members names several nodes, but cluster.listen is empty: others could not reach this node")
	}
	for id, address := range c.Members {
		if err := checkNodeID(id); err != nil {
			return fmt.Errorf("cluster.members: %w", err)
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("cluster.members: address of %q: %w", id, err)
		}
	}
	return nil
}

// Node is a running node. Its methods may be called concurrently.
type Node struct {
	cfg     Config
	log     *slog.Logger
	raftID  raft.ServerID
	address string // for peers; the node id when there is no peer port

	storage   *storage
	book      *addresses
	port      *peerPort // nil when there is no peer port
	peers     *calls
	leader    *leaderWatch
	settler   *settler
	changing  places // of members, one at a time
	moving    *readdressing
	machine   *machine
	raft      *raft.Raft
	leads     *leadership
	rounds    *rounds
	snapshots *snapshotter

	// calls are what the node's users wait for, terms what it asks raft itself.
	// Both hold futures that raft would never answer once it is shut down.
	calls    gate
	terms    gate
	places   places // of the commands that are not answered
	batches  batches
	stopping chan struct{}

	undo      cleanup
	closeOnce sync.Once
	closed    chan struct{} // closed when closeErr is set
	closeErr  error
}

// Open starts the node in cfg.DataDir with fsm, which must be empty: it gets the
// newest snapshot and every later entry again. At the first start the folder is
// created and the cluster founded. fsm may be a raft.BatchingFSM; it gets
// commands only. A panic of fsm ends the process, as it must: a node that went
// on would differ from the others.
//
// With several members configured, the first start founds the cluster when all of
// them run and are empty; a node that finds their cluster founded joins it, if it
// was a member before or is added. Status says what it waits for.
//
// Open returns before any of that, and before the node leads. A node alone leads some milliseconds and
// the replay of its log later, see Leadership.
//
// It fails, leaving nothing behind that runs, when the folder is in use
// (ErrInUse, after two seconds), belongs to another node, has lost or damaged
// files, or was written by another release. ctx bounds the wait for the folder
// and the port, not the reading of the files. An fsm that is an io.Closer is closed
// when it is given nothing any more.
func Open(ctx context.Context, cfg Config, fsm raft.FSM) (*Node, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg:      cfg,
		log:      cfg.Logger.With("node", cfg.NodeID),
		address:  cfg.NodeID,
		book:     newAddresses(cfg.Members),
		machine:  newMachine(fsm),
		moving:   newReaddressing(),
		leads:    newLeadership(),
		places:   make(places, maxInFlight),
		changing: make(places, 1),
		stopping: make(chan struct{}),
		closed:   make(chan struct{}),
	}
	n.batches.submit = func(command []byte) raft.ApplyFuture {
		// Without a timeout: there is room. With one raft would set a timer each time.
		return n.raft.Apply(command, 0)
	}
	n.batches.done = func() { n.places.free(); n.calls.leave() }
	n.machine.arriving = n.batches.arrived
	if err := n.open(ctx); err != nil {
		return nil, fmt.Errorf("open node %s: %w", cfg.NodeID, errors.Join(err, n.undo.run()))
	}
	return n, nil
}

// open starts the parts in the order in which they need each other. DESIGN.md
// has the reverse order and what each step of it waits for.
func (n *Node) open(ctx context.Context) error {
	logger := newRaftLogger(n.log)
	var err error
	if n.storage, err = openStorage(ctx, n.cfg, logger, &n.undo); err != nil {
		return err
	}
	n.machine.covered = n.storage.log.covered.Store
	n.raftID = raft.ServerID(n.storage.id.get().serverID())
	if err := n.listen(ctx); err != nil {
		return err
	}
	trans := newTransport(n.raftID, n.port, n.moving, n.storage.log.writable, logger)
	n.undo.push("transport", trans.Close)

	// Some room, so that raft can go on while a notice is being looked at.
	notices := make(chan bool, 8)
	conf := raftConfig(n.cfg, n.raftID, logger, notices)
	if err := n.storage.found(conf, n.raftID, raft.ServerAddress(n.address), trans, len(n.cfg.Members) > 1); err != nil {
		return err
	}
	if fsm, ok := n.machine.fsm.(io.Closer); ok {
		n.undo.push("state machine", fsm.Close)
	}
	start := time.Now()
	if n.raft, err = n.startRaft(conf, trans); err != nil {
		return fmt.Errorf("start raft in %s: %w", n.storage.dir, err)
	}
	n.book.use(n.raft)
	n.storage.terms.hooks.Store(&termHooks{hold: n.holdTerm, waits: func() { n.leads.begin() }})
	n.startWatch(notices)
	n.settler = newSettler(n)
	n.leader = watchLeader(n.raft)
	n.undo.push("leader", n.leader.close)
	n.peers = newCalls(n.port, n.questions(), n.log)
	n.undo.push("calls of peers", n.peers.close)
	n.undo.push("terms", n.stopTerms)

	n.snapshots = newSnapshotter(n.cfg.Snapshot, n.log, n.machine, n.storage.snapshots, func() error {
		return n.raft.Snapshot().Error()
	})
	go n.snapshots.run()
	n.undo.push("snapshots", n.stopSnapshots)

	n.settler.start()
	n.undo.push("membership", n.settler.close)
	if n.port != nil {
		n.undo.push("silence", watchSilence(n.raft, n.raftID, n.askLog).close)
	}

	n.rounds = &rounds{ask: n.ask, asking: &n.calls}
	n.undo.push("calls", func() error { n.calls.shut(); return nil })

	if soleVoter(n.raft, n.raftID) {
		if err := lookNow(n.raft); err != nil {
			return err
		}
	}
	n.log.Info("node started", "data_dir", n.cfg.DataDir, "cluster", n.storage.id.get().ClusterID, "address", n.address,
		"last_index", n.raft.LastIndex(), "restored_index", n.machine.applied.Load(), "duration", time.Since(start))
	return nil
}

// listen opens the peer port, if there is one.
func (n *Node) listen(ctx context.Context) error {
	if n.cfg.Listen != "" {
		port, err := listenPeers(ctx, n.cfg, n.book, n.membership)
		if err != nil {
			return err
		}
		n.undo.push("peer port", port.Close)
		n.port, n.address = port, cmp.Or(port.address, n.cfg.NodeID)
	}
	return nil
}

// membership is what the node is to its peers now.
func (n *Node) membership() membership {
	id := n.storage.id.get()
	return membership{serverID: id.serverID(), clusterID: id.ClusterID, member: id.member()}
}

// startRaft returns an error where raft panics with one: when it cannot read an
// entry above the newest snapshot. It reads them before it starts a goroutine,
// so nothing is left running. Reading them here first would do without recover,
// but a restart with a long log would decode each entry once more.
func (n *Node) startRaft(conf *raft.Config, trans raft.Transport) (r *raft.Raft, err error) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case error:
			if !errors.Is(reason, errUnreadable) && !errors.Is(reason, raft.ErrLogNotFound) {
				panic(reason)
			}
			r, err = nil, fmt.Errorf("the log is damaged: %w; restore the directory from a backup", reason)
		default:
			panic(reason)
		}
	}()
	r, err = raft.NewRaft(conf, n.machine, n.storage.cache, n.storage.terms, n.storage.snapshots, trans)
	if least := n.storage.snapshots.leastIndex(); err != nil && least > 0 {
		err = fmt.Errorf("%w: %w", n.storage.forgotten(least), err)
	}
	return r, err
}

// holdTerm keeps a node whose vote alone decides from electing itself while it
// cannot write its log. Others ask for votes, see abstaining.
func (n *Node) holdTerm() error {
	if !soleVoter(n.raft, n.raftID) {
		return nil
	}
	return n.storage.log.writable()
}

// startWatch follows raft's notices for as long as raft runs and a little
// longer: raft stands still when one is not taken.
func (n *Node) startWatch(notices <-chan bool) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		n.watch(notices, stop)
	}()
	n.undo.push("raft", func() error {
		n.storage.terms.shut()
		err := n.raft.Shutdown().Error()
		close(stop)
		<-stopped
		return err
	})
}

func (n *Node) stopTerms() error {
	close(n.stopping)
	n.terms.shut()
	return nil
}

func (n *Node) stopSnapshots() error {
	close(n.snapshots.stop)
	<-n.snapshots.stopped
	return nil
}

// Close stops the node: a leader hands leadership over, for at most a second; new
// calls get ErrClosed, running ones are finished, then
// everything is stopped and the folder is free for another process.
//
// When ctx ends first Close returns an error that says what it was waiting for,
// and stopping goes on by itself; nothing is torn from what still runs. Further
// calls return what the first returned.
func (n *Node) Close(ctx context.Context) error {
	first := false
	n.closeOnce.Do(func() { first = true })
	if !first {
		select {
		case <-n.closed:
			return n.closeErr
		case <-ctx.Done():
		}
		select {
		case <-n.closed: // both were ready
			return n.closeErr
		default:
			return n.closeCut(ctx)
		}
	}
	done := make(chan error, 1)
	n.storage.terms.shut()
	go func() {
		n.handOver(ctx)
		done <- n.undo.run()
	}()
	select {
	case n.closeErr = <-done:
		n.log.Info("node stopped")
	case <-ctx.Done():
		n.closeErr = n.closeCut(ctx)
	}
	close(n.closed)
	return n.closeErr
}

func (n *Node) closeCut(ctx context.Context) error {
	waiting := "an earlier Close"
	if s, ok := n.undo.last(); ok {
		waiting = s.name
	}
	return fmt.Errorf("close node %s: still waiting for %s: %w", n.cfg.NodeID, waiting, context.Cause(ctx))
}
