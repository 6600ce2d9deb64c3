package main

import (
	"github.com/spf13/cobra"

	"leased/gateway/api"
)

func newGet(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get LEASE_ID",
		Short:   "Show a lease, active or ended",
		Example: `  leased get 3q2-…-Xk`,
		Args:    leaseArg,
	}
	f := addClientFlags(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		lease, err := c.Get(ctx, "", args[0])
		if err != nil {
			return err
		}
		if f.json {
			return printJSON(e, api.GetReply{Lease: lease})
		}
		return printLease(e, lease.State, lease)
	}
	return cmd
}
