package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"leased/client"
	"leased/contract"
	"leased/gateway/api"
)

func newList(e *env) *cobra.Command {
	var (
		r             client.ListRequest
		target        string
		expiresBefore string
		limit         int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List leases",
		Long: `List the namespace's leases: the active ones, or with --state those in another
state. Filters match literally and are combined with "and".`,
		Example: `  leased list
  leased list --tenant acme --instance worker-7
  leased list --target domain:example.com --state expired
  leased list --expires-before 30s --json | jq -r '.leases[].lease_id'`,
		Args: noArgs,
	}
	addListFlags(cmd, &r)
	flags := cmd.Flags()
	flags.StringVar(&target, "target", "", "only keys of this target, as type:id")
	flags.StringVar(&expiresBefore, "expires-before", "", "only leases that expire before then: an RFC 3339 time, or a duration from now")
	flags.IntVar(&limit, "limit", 0, "show at most this many (default all)")
	f := addClientFlags(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if target != "" {
			if r.Target, err = parseTarget(target); err != nil {
				return err
			}
		}
		if expiresBefore != "" {
			if r.ExpiresBefore, err = parseInstant(expiresBefore, e.now()); err != nil {
				return err
			}
		}
		if err := checkLimit(cmd, limit); err != nil {
			return err
		}
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		all, err := allLeases(ctx, c, r, limit)
		if err != nil {
			return err
		}
		if f.json {
			return printJSON(e, all)
		}
		return printLeases(e, all.Leases, all.NextCursor != "")
	}
	return cmd
}

// addListFlags adds the filters that are plain texts.
func addListFlags(cmd *cobra.Command, r *client.ListRequest) {
	flags := cmd.Flags()
	flags.StringVar(&r.Owner, "owner", "", "only leases of this owner")
	flags.StringVar(&r.Instance, "instance", "", "only leases of this instance")
	flags.StringVar(&r.Tenant, "tenant", "", "only keys of this tenant")
	flags.StringVar(&r.Program, "program", "", "only keys of this program")
	flags.StringVar(&r.Actor, "actor", "", "only keys of this actor")
	flags.StringVar(&r.JobID, "job", "", "only leases for this job")
	flags.StringVar(&r.State, "state", "", "active, expired, released or revoked (default active)")
}

// allLeases follows the pages until limit leases are there, or all of them.
func allLeases(ctx context.Context, c *client.Client, r client.ListRequest, limit int) (*api.ListReply, error) {
	all := &api.ListReply{Leases: []*api.Lease{}}
	for {
		r.Limit = pageSize(limit, len(all.Leases))
		page, err := c.List(ctx, r)
		if err != nil {
			return nil, err
		}
		all.Leases = append(all.Leases, page.Leases...)
		all.NextCursor = page.NextCursor
		if page.NextCursor == "" || limit > 0 && len(all.Leases) >= limit {
			return all, nil
		}
		r.Cursor = page.NextCursor
	}
}

// parseInstant reads a time, or a duration from now.
func parseInstant(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, usagef("%q is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 30s", s)
	}
	return at, nil
}

func checkLimit(cmd *cobra.Command, limit int) error {
	if cmd.Flags().Changed("limit") && limit < 1 {
		return usagef("--limit must be at least 1, not %d", limit)
	}
	return nil
}

// pageSize returns how many to ask for next when limit are wanted, 0 for all.
func pageSize(limit, have int) int {
	if limit == 0 {
		return contract.MaxPage
	}
	return min(limit-have, contract.MaxPage)
}
