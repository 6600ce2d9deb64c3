package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// env is everything that a command takes from its process.
type env struct {
	args           []string
	environ        []string
	stdout, stderr io.Writer
	hostname       string
	now            func() time.Time
	version        string
	// atEnd, if a command has set it, is called when everything was said.
	atEnd func()
	// takeSignals makes signals the command's, which end its context otherwise; a
	// signal that is ignored stays so. give stops that.
	takeSignals func(signals []os.Signal) (taken <-chan os.Signal, give func())
	// supervisor is the command line of a process that supervises another one; the
	// number of a socket is to be appended.
	supervisor []string
}

// getenv returns a variable; unset and empty are the same.
func (e *env) getenv(name string) string {
	for _, pair := range slices.Backward(e.environ) {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}

// run runs the command that e names and returns the exit code.
func run(ctx context.Context, e *env) int {
	root := newRoot(e)
	root.SetArgs(e.args)
	cmd, err := root.ExecuteContextC(ctx)
	defer func() {
		if e.atEnd != nil {
			e.atEnd()
		}
	}()
	if err == nil {
		return exitDone
	}
	printError(e, cmd, err)
	return exitCode(err)
}

const (
	groupServer = "server"
	groupLeases = "leases"
)

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "leased",
		Short: "Time-bounded leases with fencing tokens",
		Long: `leased grants leases: time-bounded, exclusive rights to work on a key, each with
a fencing token that only ever rises.

Start a server, then take a lease from another terminal:

  leased serve
  leased acquire --tenant acme --target domain:example.com --actor crawler

Exit codes of every command:

  0  done
  1  anything that is not below
  2  wrong usage, or a request that the server calls invalid
  3  held by another
  4  the lease is lost: expired, released, revoked, or never this caller's
  5  unavailable, or the outcome is not known
  6  denied`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if near := root.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return usagef("there is no command %q%s", args[0], hint)
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return notEmpty(cmd.Flags()) }
	root.SetHelpCommand(newHelp(root))
	root.AddGroup(&cobra.Group{ID: groupServer, Title: "Server:"}, &cobra.Group{ID: groupLeases, Title: "Leases:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupServer, newServe(e), newCluster(e), newContract(e))
	add(groupLeases, newAcquire(e), newRenew(e), newRelease(e), newGet(e), newList(e), newHistory(e), newWatch(e), newCheck(e), newRevoke(e), newRun(e))
	root.AddCommand(newVersion(e), newSupervise(e))
	return root
}
