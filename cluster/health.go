package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// Member is a node as the cluster sees it.
type Member struct {
	ID      string
	Address string
	// Role is leader, follower, candidate or shutdown; empty when the node does not
	// answer.
	Role  string
	Voter bool
	// Healthy: the node answers, has its place in the cluster, can write its log, and
	// is the leader or has heard from it lately and has applied all but the newest
	// 1,024 entries of its log. A node that lost its folder has its place once it votes
	// again. What was committed is the leader's word: while it does not answer, no node
	// is known to be healthy.
	Healthy bool
	// Error is why there is nothing below.
	Error string

	Term          uint64
	LastIndex     uint64
	AppliedIndex  uint64
	LastContact   time.Duration // since it heard from the leader; negative for never
	SnapshotIndex uint64
	SnapshotTime  time.Time
	LogBytes      int64
	LogError      string // why the log cannot be written; empty when it can
}

// Members returns the members of the cluster as this node's newest configuration
// has them, in its order, each with what it says of itself. It takes a second at
// most, however many do not answer.
func (n *Node) Members(ctx context.Context) []Member {
	servers := n.raft.GetConfiguration().Configuration().Servers
	reports := n.surveyMembers(ctx)
	commit, led := committed(reports)
	members := make([]Member, 0, len(servers))
	for _, s := range servers {
		r := reports[nodeOf(string(s.ID))]
		m := Member{ID: nodeOf(string(s.ID)), Address: string(s.Address), Voter: s.Suffrage == raft.Voter, LastContact: -1}
		switch {
		case r.err != nil:
			m.Error = r.err.Error()
		case r.ServerID != string(s.ID):
			m.Error = "its folder was lost; the node comes back as another server"
		default:
			m.Role, m.Term, m.LastIndex, m.AppliedIndex = r.Role, r.Term, r.LastIndex, r.AppliedIndex
			m.SnapshotIndex, m.SnapshotTime, m.LogBytes = r.SnapshotIndex, r.SnapshotTime, r.LogBytes
			if r.LastContactMS >= 0 {
				m.LastContact = time.Duration(r.LastContactMS) * time.Millisecond
			}
			m.LogError = r.LogError
			heard := r.Role == roleLeader || r.Leader != "" && m.LastContact >= 0 && m.LastContact < 2*heartbeatTimeout
			m.Healthy = heard && m.LogError == "" && r.Waiting == "" && led && r.has(commit)
		}
		members = append(members, m)
	}
	return members
}

// surveyMembers is survey of all members, this node too. The leader looks at itself
// first, see has; but one that takes half of the time leaves the others the rest of it.
func (n *Node) surveyMembers(ctx context.Context) map[string]report {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	others := n.others()
	leader, _ := n.Leader()
	i := slices.Index(others, leader)
	answer := make(chan report, 1)
	if i >= 0 {
		others = slices.Delete(others, i, i+1)
		go func() { answer <- n.survey(ctx, []string{leader})[leader] }()
		half, over := halfOf(ctx)
		select {
		case r := <-answer:
			answer <- r
		case <-half.Done():
		}
		over()
	}
	own := n.report()
	reports := n.survey(ctx, others)
	reports[n.cfg.NodeID] = own
	if i >= 0 {
		reports[leader] = <-answer
	}
	return reports
}

// committed returns what the newest leader among those who reported has committed,
// and whether there is one. Without it nobody can tell what a node lacks.
func committed(reports map[string]report) (commit uint64, led bool) {
	var leader report
	for _, r := range reports {
		if r.err == nil && r.Role == roleLeader && r.Term >= leader.Term {
			leader, led = r, true
		}
	}
	return leader.CommitIndex, led
}

// has tells whether a node can take the place of one that has all up to commit,
// without having to be sent much first. commit is of before the node was asked: a
// survey takes a second when one of many is silent, in which others apply more than
// promoteLag.
func (r *report) has(commit uint64) bool { return r.AppliedIndex+promoteLag >= commit }

// Applies returns nil when every member of the cluster, those without a vote too, has
// said that its FSM applies commands of the version. Otherwise the error says which
// has not: it runs an earlier release, or does not answer. It takes a second at most.
func (n *Node) Applies(ctx context.Context, version int) error {
	reports := n.survey(ctx, n.others())
	reports[n.cfg.NodeID] = n.report()
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		id := nodeOf(string(s.ID))
		switch r := reports[id]; {
		case r.err != nil:
			return fmt.Errorf("node %s does not answer: %w", id, r.err)
		case r.ServerID != string(s.ID):
			return fmt.Errorf("node %s has not come back since it lost its folder", id)
		case max(r.CommandVersion, 1) < version:
			return fmt.Errorf("node %s runs an earlier release", id)
		}
	}
	return nil
}

// knowsLess tells whether a node applies fewer kinds of commands than this one. Those
// that it does not know may be in the log, see Applies.
func (n *Node) knowsLess(r *report) bool { return max(r.CommandVersion, 1) < n.cfg.CommandVersion }
