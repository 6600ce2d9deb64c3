package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"leased/backends/raftkv"
	"leased/cluster"
	"leased/contract"
)

// opener opens a backend. What it opened it pushes onto a.cleanups, also when it
// fails half-way.
type opener func(ctx context.Context, a *app, name string) (contract.Store, error)

// openers has one line for each type of backend.
func openers() map[string]opener {
	return map[string]opener{
		backendRaftKV: openRaftKV,
		backendValkey: openValkey,
		backendEtcd:   openEtcd,
	}
}

// openBackend opens the backend that the configuration calls name.
func openBackend(ctx context.Context, a *app, name string) (contract.Store, error) {
	kind := a.settings.Backends[name].Type
	open, ok := openers()[kind]
	if !ok {
		return nil, fmt.Errorf("backends.%s: no backend has the type %q", name, kind)
	}
	store, err := open(ctx, a, name)
	if err != nil {
		return nil, fmt.Errorf("backends.%s: %w", name, err)
	}
	return store, nil
}

// openRaftKV starts the raft node of this process and the store on it. They are
// closed from the top: a waiter leaves its queue through the log, so the store
// must be told to end while the engine and the node still run; the engine's last
// commands need the node.
func openRaftKV(ctx context.Context, a *app, name string) (contract.Store, error) {
	s := a.settings
	fsm := raftkv.NewFSM()
	node, err := cluster.Open(ctx, cluster.Config{
		NodeID: s.Node.ID, DataDir: s.Node.DataDir, Listen: s.Cluster.Listen, Members: s.Cluster.Members,
		TLS:      cluster.TLSFiles{Cert: s.Cluster.TLS.Cert, Key: s.Cluster.TLS.Key, CA: s.Cluster.TLS.CA},
		Snapshot: cluster.SnapshotConfig{Entries: s.Cluster.Snapshot.Entries, Interval: time.Duration(s.Cluster.Snapshot.Interval)},
		Logger:   a.log, CommandVersion: raftkv.CommandVersion,
	}, fsm)
	if err != nil {
		return nil, err
	}
	a.cleanups.push("raft node", node.Close)
	engine := raftkv.New(raftkv.Options{
		FSM: fsm, Proposer: node, NodeID: s.Node.ID, Peers: node, Members: node, Observer: a.observer.observe, Logger: a.log,
	})
	a.cleanups.push("engine of backend "+name, engine.Close)
	peers := engine.PeerHandler()
	a.cleanups.push("calls of other nodes", peers.Close)
	node.Serve(peers)
	store := engine.Forwarder()
	a.cleanups.push("store of backend "+name, store.Close)
	a.cluster = &clusterAdmin{node: node, store: store}
	if len(s.Cluster.Members) > 1 {
		// It serves as soon as there is a leader, here or elsewhere, and says so at
		// /readyz. Until then the other nodes may not even run.
		return store, nil
	}
	return store, waitForLeader(ctx, a.log, node)
}

// waitForLeader returns once a node leads, so that the first request after the
// start is served. A node alone leads as soon as it has read its log; when that
// takes long, it says so.
func waitForLeader(ctx context.Context, log *slog.Logger, node *cluster.Node) error {
	patience := time.NewTimer(2 * time.Second)
	defer patience.Stop()
	for {
		leader, elected := node.Leader()
		term, changed := node.Leadership()
		if term != 0 || leader != "" && leader != node.Status().NodeID {
			return nil
		}
		select {
		case <-elected:
		case <-changed:
		case <-patience.C:
			log.Info("waiting for a node to lead: this one reads its log first")
		case <-ctx.Done():
			return fmt.Errorf("wait for a node to lead: %w", context.Cause(ctx))
		}
	}
}
