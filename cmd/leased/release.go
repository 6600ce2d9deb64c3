package main

import (
	"github.com/spf13/cobra"

	"leased/client"
)

func newRelease(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release LEASE_ID --token N",
		Short: "Give a lease back",
		Long: `Give a lease back, so that the next waiter gets the key at once.

It can never end a newer lease of the same key. Exit code 4 means that the lease
had ended before.`,
		Example: `  leased release 3q2-…-Xk --token 42`,
		Args:    leaseArg,
	}
	holder := addHolderFlags(e, cmd)
	f := addClientFlags(e, cmd)
	f.addRequestID(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := holder.check(); err != nil {
			return err
		}
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		got, err := c.Release(ctx, client.ReleaseRequest{
			RequestID: f.requestID, LeaseID: args[0], Token: holder.token, Instance: holder.instance,
		})
		if err != nil {
			return asHolder(err)
		}
		return f.printAnswer(got)
	}
	return cmd
}
