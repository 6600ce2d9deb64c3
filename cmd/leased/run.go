package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"leased/client"
)

// runFlags are what `leased run` was told.
type runFlags struct {
	*clientFlags
	request client.HoldRequest
	quiet   bool
	path    string // of the command
	args    []string
}

func newRun(e *env) *cobra.Command {
	r := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run --tenant T --target TYPE:ID --actor A [flags] -- COMMAND [ARGS]",
		Short: "Hold a lease while a command runs",
		Long:  runLong,
		Example: `  leased run --tenant acme --target domain:example.com --actor crawler -- ./crawl example.com
  leased run --tenant acme --target name:nightly --actor backup --wait 5m -- sh -c 'pg_dump … | upload --token "$LEASED_TOKEN"'
  leased run --tenant acme --target name:nightly --actor backup --json -- ./backup 2> events.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("a command to run is needed, after --")
			}
			return nil
		},
	}
	key := addKeyFlags(cmd)
	flags := cmd.Flags()
	flags.SetInterspersed(false) // the command's flags are not ours
	addInstanceFlag(e, cmd, &r.request.Instance)
	flags.DurationVar(&r.request.TTL, "ttl", 0, "life of the lease, which is renewed at each third of it (default the namespace's)")
	flags.DurationVar(&r.request.Margin, "margin", 0,
		"how long before the lease could pass to another the command is told to end; half of it later it is killed (default a sixth of the TTL)")
	flags.DurationVar(&r.request.Wait, "wait", 0, "how long to queue for a key that is held (default not at all)")
	about := addJobFlags(cmd, &r.request.AcquireRequest)
	flags.BoolVarP(&r.quiet, "quiet", "q", false, "say only what goes wrong")
	r.clientFlags = addClientFlags(e, cmd)
	flags.Lookup("json").Usage = "say what happens in lines of JSON, on standard error"
	flags.Lookup("timeout").Usage = "how long acquiring, beside the wait, and releasing may take, retries included"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := about.read(cmd, key, &r.request.AcquireRequest)
		if err == nil {
			err = positive(cmd, "margin")
		}
		if err != nil {
			return err
		}
		// Before a lease is taken: what cannot be started need not wait.
		if r.path, err = exec.LookPath(args[0]); err != nil {
			return usagef("the command cannot be run: %w", err)
		}
		r.args = args
		c, err := r.client(cmd)
		if err != nil {
			return err
		}
		defer c.Close()
		return hold(cmd, e, r, c)
	}
	return cmd
}

// runLong is what the help says.
const runLong = `Hold a lease while a command runs.

The command starts once the lease is acquired, in a process group of its own, with
LEASED_TOKEN, LEASED_LEASE_ID, LEASED_KEY_ID and LEASED_EXPIRES_AT in its
environment. The lease is renewed until the command and everything it started have
ended, and released then. The token belongs into every write that the command
makes: only that keeps a write out which is late.

When the lease is lost, or cannot be renewed, all processes of the command get
SIGTERM, and SIGKILL half of the margin later: before another could have the key,
unless somebody ended the lease on purpose.

HUP, INT, QUIT and TERM are passed on to the command's group; USR1, USR2 and WINCH
to the command. The terminal is the command's when it asks for it.

The exit code is the command's, or 128 and the number of the signal that ended it,
when the lease was held to the end; 4 when it was lost; and otherwise as for the
other commands.`

// hold runs the command under a lease.
func hold(cmd *cobra.Command, e *env, r *runFlags, c *client.Client) error {
	say := newNarrator(e, r)
	waiting := time.AfterFunc(waitingAfter, say.waiting)
	s, err := c.Hold(cmd.Context(), r.request)
	waiting.Stop()
	if err != nil {
		return err
	}
	// Signals were the acquisition's so far. Whoever is told that the lease is held
	// can rely on it that they are the command's.
	signals, restore := e.takeSignals(passedOn())
	defer restore()
	say.acquired(s)
	j := &job{env: e, flags: r, session: s, say: say, signals: signals}
	ran := j.run(cmd.Context())
	return say.released(s, release(s, signals), ran)
}

// patienceAtEnd is how long a release may still take when a signal says that nobody
// wants to wait for it.
const patienceAtEnd = time.Second

// release releases the lease, or gives that up soon after a signal that ends others.
func release(s *client.Session, signals <-chan os.Signal) error {
	released := make(chan error, 1)
	go func() { released <- s.Release() }() // bounded by the client's timeout, and by the process's end
	var over <-chan time.Time
	for {
		select {
		case err := <-released:
			return err
		case <-over:
			return errors.New("interrupted")
		case sig := <-signals:
			switch sig {
			case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
				if over == nil {
					over = time.After(patienceAtEnd)
				}
			default: // they were for the command
			}
		}
	}
}

// commandError is how the command ended, as an error that has an exit code and
// needs no words: the command has said itself what there is to say.
type commandError struct{ code int }

func (*commandError) Error() string { return "the command failed" }

// toldError is an error of which JSON had an event.
type toldError struct{ err error }

func (e *toldError) Error() string { return e.err.Error() }
func (e *toldError) Unwrap() error { return e.err }
