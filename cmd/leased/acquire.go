package main

import (
	"strings"

	"github.com/spf13/cobra"

	"leased/client"
)

func newAcquire(e *env) *cobra.Command {
	var r client.AcquireRequest
	cmd := &cobra.Command{
		Use:   "acquire --tenant T --target TYPE:ID --actor A",
		Short: "Take a lease on a key",
		Long: `Take a lease on a key, and print its id and its fencing token.

The lease ends by itself after its TTL. Renew it before that to keep it, release
it when done. A key that is held is exit code 3; --wait queues for it, first come
first served.`,
		Example: `  leased acquire --tenant acme --target domain:example.com --actor crawler
  leased acquire --tenant acme --target ip:192.0.2.7 --actor scanner --ttl 2m --wait 1m
  leased acquire --tenant acme --target name:nightly --actor backup --job job-17 --meta host=db1
  leased acquire --tenant acme --target name:nightly --actor backup --json | jq .lease.token`,
		Args: noArgs,
	}
	key := addKeyFlags(cmd)
	flags := cmd.Flags()
	addInstanceFlag(e, cmd, &r.Instance)
	flags.DurationVar(&r.TTL, "ttl", 0, "life of the lease from the grant on (default the namespace's)")
	flags.DurationVar(&r.Wait, "wait", 0, "how long to queue for a key that is held; --timeout comes on top (default not at all)")
	job := addJobFlags(cmd, &r)
	f := addClientFlags(e, cmd)
	f.addRequestID(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := job.read(cmd, key, &r); err != nil {
			return err
		}
		ctx, cancel, c, err := f.connect(cmd, r.Wait)
		if err != nil {
			return err
		}
		defer cancel()
		r.RequestID = f.requestID
		got, err := c.Acquire(ctx, r)
		if err != nil {
			return err
		}
		return f.printAnswer(got)
	}
	return cmd
}

func parseMeta(pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(pairs))
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usagef("--meta %q is not name=value", pair)
		}
		if _, twice := m[name]; twice {
			return nil, usagef("--meta names %q twice", name)
		}
		m[name] = value
	}
	return m, nil
}
