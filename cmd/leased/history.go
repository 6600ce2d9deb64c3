package main

import (
	"context"

	"github.com/spf13/cobra"

	"leased/client"
	"leased/gateway/api"
)

func newHistory(e *env) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "history KEY_ID | --tenant T --target TYPE:ID --actor A",
		Short: "Show what happened to a key",
		Long: `Show the events of a key, newest first: who acquired it, and how each lease ended.
Renewals are counted in the lease and are not events. The namespace decides how
long events are kept.`,
		Example: `  leased history --tenant acme --target domain:example.com --actor crawler
  leased history Jf0…9Q --limit 10`,
		Args: keyArg,
	}
	key := addKeyFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 0, "show at most this many (default all)")
	f := addClientFlags(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		named, id, err := key.orID(args)
		if err != nil {
			return err
		}
		if err := checkLimit(cmd, limit); err != nil {
			return err
		}
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		if id, err = keyID(ctx, c, named, id); err != nil {
			return err
		}
		all, err := allEvents(ctx, c, id, limit)
		if err != nil {
			return err
		}
		if f.json {
			return printJSON(e, all)
		}
		return printEvents(e, all.Events, all.NextCursor != "")
	}
	return cmd
}

// keyID returns the id of the key that orID found.
func keyID(ctx context.Context, c *client.Client, named *api.Key, id string) (string, error) {
	if named == nil {
		return id, nil
	}
	// The server's rules make the id, not this program's: they could be of
	// different releases, and under a wrong id nothing ever happens.
	resolved, err := c.Resolve(ctx, "", *named)
	if err != nil {
		return "", err
	}
	return resolved.KeyID, nil
}

func allEvents(ctx context.Context, c *client.Client, keyID string, limit int) (*api.HistoryReply, error) {
	all := &api.HistoryReply{Events: []api.Event{}}
	for cursor := ""; ; cursor = all.NextCursor {
		page, err := c.History(ctx, client.HistoryRequest{KeyID: keyID, Limit: pageSize(limit, len(all.Events)), Cursor: cursor})
		if err != nil {
			return nil, err
		}
		all.Events = append(all.Events, page.Events...)
		all.NextCursor = page.NextCursor
		if page.NextCursor == "" || limit > 0 && len(all.Events) >= limit {
			return all, nil
		}
	}
}

// keyArg is the Args of a command on a key, which key flags may name instead.
func keyArg(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return oneArg(args, "KEY_ID", "")
}

// orID returns the key that the flags name, or else the id in args.
func (f *keyFlags) orID(args []string) (*api.Key, string, error) {
	switch {
	case len(args) == 1 && f.given():
		return nil, "", usagef("name the key by KEY_ID or by flags, not by both")
	case len(args) == 1:
		return nil, args[0], nil
	case !f.given():
		return nil, "", usagef("name the key: KEY_ID, or --tenant, --target and --actor")
	}
	key, err := f.read()
	return &key, "", err
}
