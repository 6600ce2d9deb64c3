package main

import (
	"github.com/spf13/cobra"

	"leased/client"
	"leased/gateway/api"
)

func newRevoke(e *env) *cobra.Command {
	var (
		reason string
		force  bool
	)
	cmd := &cobra.Command{
		Use:   "revoke LEASE_ID --reason TEXT",
		Short: "End somebody's lease",
		Long: `End a lease whoever holds it. This needs the right to revoke, and a reason, which
the history keeps.

The holder notices at its next renewal. Until then it may still write: what it
writes to must compare fencing tokens. A newer lease of the same key is never
touched.`,
		Example: `  leased revoke 3q2-…-Xk --reason "incident 4711"
  leased revoke 3q2-…-Xk --reason "host is gone" --force-release`,
		Args: leaseArg,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; kept in the history")
	cmd.Flags().BoolVar(&force, "force-release", false, "the holder is believed dead, in place of no longer entitled")
	f := addClientFlags(e, cmd)
	f.addRequestID(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if reason == "" {
			return usagef("--reason is needed: the history keeps it for whoever asks later")
		}
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		r := client.RevokeRequest{RequestID: f.requestID, LeaseID: args[0], Reason: reason, Mode: api.ModeRevoke}
		if force {
			r.Mode = api.ModeForceRelease
		}
		got, err := c.Revoke(ctx, r)
		if err != nil {
			return err
		}
		return f.printAnswer(got)
	}
	return cmd
}
