package main

import (
	"github.com/spf13/cobra"

	"leased/client"
)

func newCheck(e *env) *cobra.Command {
	var token uint64
	cmd := &cobra.Command{
		Use:   "check KEY_ID | --tenant T --target TYPE:ID --actor A --token N",
		Short: "Tell whether a token is the key's current one",
		Long: `Tell whether a fencing token is that of the key's active lease: exit code 0 if it
is, 4 if not.

A check is no permission for a later write: the lease may end right after it.
Where it matters, compare tokens in the same transaction as the write.`,
		Example: `  leased check --tenant acme --target domain:example.com --actor crawler --token 42
  leased check Jf0…9Q --token 42`,
		Args: keyArg,
	}
	key := addKeyFlags(cmd)
	cmd.Flags().Uint64Var(&token, "token", 0, "fencing token to check")
	f := addClientFlags(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		named, id, err := key.orID(args)
		if err != nil {
			return err
		}
		if token == 0 {
			return usagef("--token is needed: the fencing token to check")
		}
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		got, err := c.Check(ctx, client.CheckRequest{Key: named, KeyID: id, Token: token})
		if err != nil {
			return asHolder(err)
		}
		return f.printAnswer(got)
	}
	return cmd
}
