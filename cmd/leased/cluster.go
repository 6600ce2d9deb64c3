package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"leased/client"
	"leased/gateway/api"
)

func newCluster(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Look after the nodes of a raftkv store",
		Long: `Look after the nodes behind a server's raftkv store: who is a member, who leads,
backup and restore. Any node answers any of these commands. All but status need
the right "admin".`,
		Example: `  leased cluster status
  leased cluster transfer --to n2`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q of leased cluster; see leased cluster --help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newClusterStatus(e), newClusterAdd(e), newClusterRemove(e), newClusterTransfer(e), newClusterBackup(e), newClusterRestore(e))
	return cmd
}

// statusPause is between two looks of status --wait.
const statusPause = 200 * time.Millisecond

func newClusterStatus(e *env) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the nodes, who leads, and how far each is",
		Long: `Show the nodes of the cluster as the node that is asked sees them.

BEHIND is how many log entries a node has not applied that the most advanced one
has. CONTACT is how long ago the leader and the node heard of each other. A "?" is
what a node that cannot be asked would know.

Exits with 5 when no node leads, and with --wait also when a node is not healthy.`,
		Example: `  leased cluster status
  leased cluster status --wait 1m
  leased cluster status --server http://10.0.0.2:8470 --json | jq -r .leader`,
		Args: noArgs,
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait for so long until a node leads and every member is healthy")
	f := addClientFlags(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel, c, err := f.connect(cmd, max(wait, 0))
		if err != nil {
			return err
		}
		defer cancel()
		got, err := awaitCluster(ctx, c, wait)
		if err != nil {
			return err
		}
		if f.json {
			err = printJSON(e, got)
		} else {
			err = printCluster(e, got)
		}
		if err == nil && got.Leader == "" {
			return noLeaderError{}
		}
		if err == nil && wait > 0 && !healthy(got) {
			return &unhealthyError{wait}
		}
		return err
	}
	return cmd
}

// awaitCluster looks at the cluster until it is healthy or the wait is over, and
// returns what it saw last.
func awaitCluster(ctx context.Context, c *client.Client, wait time.Duration) (*api.Cluster, error) {
	for over := time.Now().Add(wait); ; {
		got, err := c.Cluster(ctx)
		again := err != nil && exitCode(err) == exitUnavailable || err == nil && !healthy(got)
		if left := time.Until(over); !again || left <= 0 {
			return got, err
		}
		select {
		case <-time.After(statusPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func healthy(c *api.Cluster) bool {
	return c.Leader != "" && !slices.ContainsFunc(c.Nodes, func(n api.ClusterNode) bool { return !n.Healthy })
}

// unhealthyError says that the cluster serves, and not all of it is well.
type unhealthyError struct{ waited time.Duration }

func (e *unhealthyError) Error() string {
	return fmt.Sprintf("not every member is healthy after %s", e.waited)
}

// noLeaderError says that the cluster was looked at and cannot serve.
type noLeaderError struct{}

func (noLeaderError) Error() string {
	return "no node leads: nothing is granted until a majority of the voters can reach each other"
}

func printCluster(e *env, c *api.Cluster) error {
	leader := clean(c.Leader)
	if leader == "" {
		leader = "nobody"
	}
	if _, err := fmt.Fprintf(e.stdout, "cluster %s, term %d, led by %s\n\n", clean(c.ClusterID), c.Term, leader); err != nil {
		return err
	}
	var newest uint64
	for _, n := range c.Nodes {
		newest = max(newest, n.AppliedIndex)
	}
	t := newTable("NODE", "ROLE", "VOTES", "HEALTHY", "APPLIED", "BEHIND", "CONTACT", "SNAPSHOT", "LOG", "ADDRESS")
	for _, n := range c.Nodes {
		applied, behind, contact, snapshot, log := "?", "?", "?", "?", "?"
		if n.Role != "" {
			contact = milliseconds(n.LastContactMS) + " ago"
			applied, behind = strconv.FormatUint(n.AppliedIndex, 10), strconv.FormatUint(newest-n.AppliedIndex, 10)
			snapshot, log = "", bytesText(n.LogBytes)
			if n.SnapshotIndex > 0 {
				snapshot = milliseconds(n.SnapshotAgeMS) + " ago"
			}
		}
		t.row(clean(n.ID), orQuestion(n.Role), yesNo(n.Voter), yesNo(n.Healthy), applied, behind,
			contact, snapshot, log, clean(n.Address))
	}
	if err := t.print(e.stdout, len(c.Nodes), "node", false); err != nil {
		return err
	}
	for _, n := range c.Nodes {
		if n.LogError != "" {
			if _, err := fmt.Fprintf(e.stdout, "\n%s cannot write its log: %s\n", clean(n.ID), clean(n.LogError)); err != nil {
				return err
			}
		}
	}
	return nil
}

func orQuestion(s string) string {
	if s == "" {
		return "?"
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// bytesText returns a size as a person would say it.
func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

func newClusterAdd(e *env) *cobra.Command {
	var nonVoter bool
	cmd := &cobra.Command{
		Use:   "add NODE_ID ADDRESS",
		Short: "Make a node a member",
		Long: `Make a node a member, or change the address of one. ADDRESS is the node's peer
port, as its cluster.listen or as others reach it.

Start the new node first, with an empty data directory and with cluster.members
naming a node of the cluster and itself: it waits until it is added. It gets the
log, or a snapshot, and votes once it has caught up.

A cluster of n voters works as long as more than half of them do: add an even one
only on the way to an odd number.`,
		Example: `  leased cluster add n4 10.0.0.4:8471
  leased cluster add n4 10.0.0.4:8471 --non-voter`,
		Args: exactly("NODE_ID", "ADDRESS"),
	}
	cmd.Flags().BoolVar(&nonVoter, "non-voter", false, "the node gets the log and does not count for a majority")
	f := addClientFlags(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		if err := c.AddMember(ctx, api.AddMemberRequest{ID: args[0], Address: args[1], NonVoter: nonVoter}); err != nil {
			return err
		}
		return f.printDone(api.OutcomeAdded, clean(args[0])+" is a member")
	}
	return cmd
}

func newClusterRemove(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NODE_ID",
		Short: "Make a node no member",
		Long: `Make a node no member: it gets no more of the log and has no vote. Stop it after
that. To come back it must be added again, with an empty data directory.

A node that is gone for good is to be removed before another one is added in its
place: until then it counts for the majority.`,
		Example: `  leased cluster remove n2`,
		Args:    exactly("NODE_ID"),
	}
	f := addClientFlags(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		if err := c.RemoveMember(ctx, args[0]); err != nil {
			return err
		}
		return f.printDone(api.OutcomeRemoved, clean(args[0])+" is no member")
	}
	return cmd
}

func newClusterTransfer(e *env) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "transfer [--to NODE_ID]",
		Short: "Hand leadership to another node",
		Long: `Hand leadership to another node, without a time in which nobody leads for longer
than a moment. A node that is stopped with SIGTERM does so by itself.`,
		Example: `  leased cluster transfer
  leased cluster transfer --to n2`,
		Args: noArgs,
	}
	cmd.Flags().StringVar(&to, "to", "", "the node that is to lead (default: the leader chooses)")
	f := addClientFlags(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		if err := c.Transfer(ctx, to); err != nil {
			return err
		}
		return f.printDone(api.OutcomeTransferred, "another node leads; leased cluster status says which")
	}
	return cmd
}

// printDone prints what became of a command that changed the cluster.
func (f *clientFlags) printDone(outcome, text string) error {
	if f.json {
		return printJSON(f.env, &api.ClusterReply{Outcome: outcome})
	}
	_, err := fmt.Fprintln(f.env.stdout, text)
	return err
}
