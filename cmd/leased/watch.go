package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"leased/client"
	"leased/gateway/api"
)

const watchHelp = `Show the namespace's events as they happen, until interrupted: who acquires,
renews and releases, what expires and what is revoked. Filters match literally
and are combined with "and".

A stream that breaks off is resumed where it was, on another server if several are
given, which is told on standard error. Where events were lost, because the server
no longer had them, the line "gap" says so.

With --json each event is one line of JSON, as the HTTP API streams it. Its id is
what --after takes.

It exits with 0 when it is interrupted, when --limit events were shown, or after
--timeout.`

func newWatch(e *env) *cobra.Command {
	var (
		r     client.WatchRequest
		limit int
	)
	cmd := &cobra.Command{
		Use:   "watch [KEY_ID | --tenant T --target TYPE:ID --actor A]",
		Short: "Show what happens to leases, as it happens",
		Long:  watchHelp,
		Example: `  leased watch
  leased watch --instance worker-7
  leased watch --tenant acme --target domain:example.com --actor crawler
  leased watch --event expired,revoked
  leased watch --lease Jf0…AA --limit 1 --json | jq -r .event`,
		Args: keyArg,
	}
	key := addKeyFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&r.Owner, "owner", "", "only leases of this owner")
	flags.StringVar(&r.Instance, "instance", "", "only leases of this instance")
	flags.StringVar(&r.LeaseID, "lease", "", "only this lease")
	flags.StringArrayVar(&r.Events, "event", nil, "only these (`names` with commas between): acquired, renewed, released, expired, revoked (default all)")
	flags.StringVar(&r.After, "after", "", "show what happened after the event with this id (default what happens from now on)")
	flags.IntVar(&limit, "limit", 0, "end after this many events (default never)")
	f := addClientFlags(e, cmd)
	timeout := flags.Lookup("timeout")
	timeout.Usage, timeout.DefValue = "how long to watch (default until interrupted)", "0s"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkLimit(cmd, limit); err != nil {
			return err
		}
		var named *api.Key
		var err error
		if len(args) > 0 || key.given() {
			if named, r.KeyID, err = key.orID(args); err != nil {
				return err
			}
		}
		ctx, cancel, c, err := f.connect(cmd, 0)
		if err != nil {
			return err
		}
		defer cancel()
		if r.KeyID, err = keyID(ctx, c, named, r.KeyID); err != nil {
			return err
		}
		if !timeout.Changed {
			ctx = cmd.Context()
		}
		err = watch(ctx, c, r, &eventPrinter{env: e, json: f.json}, limit)
		if cmd.Context().Err() != nil {
			return nil // interrupted, before it had begun too
		}
		return err
	}
	return cmd
}

func watch(ctx context.Context, c *client.Client, r client.WatchRequest, p *eventPrinter, limit int) error {
	var failed error
	r.OnBegin = func(string) {
		if err := p.begin(); err != nil {
			failed = err
		}
	}
	r.OnBreak = p.broke
	shown := 0
	for ev, err := range c.Watch(ctx, r) {
		if err == nil {
			err = failed
		}
		if err == nil {
			err = p.print(ev)
		}
		if err != nil {
			return err
		}
		if ev.Event != api.EventGap {
			shown++
		}
		if shown == limit && limit > 0 {
			return nil
		}
	}
	return failed
}

// eventPrinter prints events one by one: nobody can wait for the widest cell.
type eventPrinter struct {
	env    *env
	json   bool
	begun  bool
	broken bool
}

// begin shows that the stream has begun.
func (p *eventPrinter) begin() error {
	if p.broken {
		p.broken = false
		p.env.complain("resumed\n")
	}
	if p.begun || p.json {
		return nil
	}
	p.begun = true
	return p.row("TIME", "EVENT", "TOKEN", "OWNER", "INSTANCE", "BY", "JOB", "KEY", "LEASE", "REASON")
}

func (p *eventPrinter) broke(err error) {
	p.broken = true
	p.env.complain("the stream broke off, and will be resumed: %s\n", clean(err.Error()))
}

func (p *eventPrinter) print(ev *api.Event) error {
	switch {
	case p.json && ev.Event == api.EventGap:
		return p.line(&api.Gap{ID: ev.ID, Event: ev.Event, Namespace: ev.Namespace})
	case p.json:
		return p.line(ev)
	case ev.Event == api.EventGap:
		return p.row("", ev.Event, "", "", "", "", "", "", "", "events were lost here")
	}
	return p.row(instant(ev.At), ev.Event, strconv.FormatUint(ev.Token, 10), clean(ev.Owner), clean(ev.Instance),
		clean(ev.Principal), clean(ev.JobID), keyText(ev.Key), clean(ev.LeaseID), clean(ev.Reason))
}

func (p *eventPrinter) line(v any) error {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = p.env.stdout.Write(append(text, '\n'))
	return err
}

// row prints cells in columns that most cells fit in.
func (p *eventPrinter) row(cells ...string) error {
	widths := [...]int{len(time.DateTime) + 1, len("acquired"), 8, 12, 12, 12, 8, 0, 0, 0}
	var line strings.Builder
	for i, cell := range cells {
		fmt.Fprintf(&line, "%-*s", widths[i], orDash(cell))
		if i < len(cells)-1 {
			line.WriteString("  ")
		}
	}
	_, err := io.WriteString(p.env.stdout, strings.TrimRight(line.String(), " ")+"\n")
	return err
}
