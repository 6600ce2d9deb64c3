package main

import (
	"time"

	"github.com/spf13/cobra"

	"leased/client"
)

func newRenew(e *env) *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "renew LEASE_ID --token N",
		Short: "Start a lease's TTL again",
		Long: `Start the TTL of a lease again, with the same id and token.

Exit code 4 means that the lease is lost: stop the work, somebody else may have
the key.`,
		Example: `  leased renew 3q2-…-Xk --token 42
  leased renew 3q2-…-Xk --token 42 --ttl 2m --instance worker-7`,
		Args: leaseArg,
	}
	holder := addHolderFlags(e, cmd)
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "life of the lease from now on (default as it was granted last)")
	f := addClientFlags(e, cmd)
	f.addRequestID(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := holder.check(); err != nil {
			return err
		}
		if err := positive(cmd, "ttl"); err != nil {
			return err
		}
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		got, err := c.Renew(ctx, client.RenewRequest{
			RequestID: f.requestID, LeaseID: args[0], Token: holder.token, Instance: holder.instance, TTL: ttl,
		})
		if err != nil {
			return asHolder(err)
		}
		return f.printAnswer(got)
	}
	return cmd
}
