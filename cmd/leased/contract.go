package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leased/contract/contracttest"
)

// contractFlags are the flags of `leased contract`.
type contractFlags struct {
	backend  string
	password string
	rules    string
	junit    string
	timeout  time.Duration
	parallel int
}

func newContract(e *env) *cobra.Command {
	var f contractFlags
	cmd := &cobra.Command{
		Use:   "contract --backend URL",
		Short: "Hold a lease store to the contract, rule by rule",
		Long: `Hold a Valkey or etcd server, or the disk of a raft node, to the contract that
every backend keeps: one rule for each promise, from "a held key is granted to
nobody else" to "a lease never ends early". What it says in the end is whether
leases on that server can be trusted.

The server stays in use: everything is written below a prefix of its own, which
is removed at the end. Two connections stand for two gateways. The server itself
is not restarted, so that the rules about a restart can only drop and renew every
connection; the report says which those are. To learn what the server keeps when
it crashes, read what its backend guarantees.

The URL names the backend, its servers, and settings of the configuration file's
section backends:

  valkey://10.0.0.1:6379
  valkey://s1:26379,s2:26379?sentinel_master=main&replica_acks=1
  etcd://e1:2379,e2:2379,e3:2379?username=leased&tls.ca=ca.pem
  raftkv:///var/lib/leased        a directory: scratch nodes live below it

A password is read from a file, and never from the command line, where every
user of the machine could read it.

Exit codes: 0 every rule holds, 1 a rule is broken, 2 wrong usage, 5 the server
cannot be reached or says that it cannot serve.`,
		Example: `  leased contract --backend valkey://127.0.0.1:6379
  leased contract --backend etcd://127.0.0.1:2379 --password-file pw --junit report.xml
  leased contract --backend raftkv:///mnt/disk --rules 'renew-*,token-*'`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.backend, "backend", "", "the store: valkey://…, etcd://… or raftkv://directory")
	flags.StringVar(&f.password, "password-file", "", "file that holds the password of the server's user")
	flags.StringVar(&f.rules, "rules", "*", "run the rules that match, such as 'renew-*,token-*'")
	flags.StringVar(&f.junit, "junit", "", "write a JUnit XML report to this file too")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Minute, "how long all of it may take; what is not finished by then is not known to hold")
	flags.IntVar(&f.parallel, "parallel", 16, "how many rules run at the same time; those about promised times run alone")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runContract(cmd, e, &f) }
	return cmd
}

// runContract runs the suite. Nothing is opened before the usage is known to be
// right, the report's file included: a run of minutes that ends in "permission
// denied" helps nobody.
func runContract(cmd *cobra.Command, e *env, f *contractFlags) (err error) {
	rules, err := f.check(cmd)
	if err != nil {
		return err
	}
	subject, err := newSubject(f.backend, f.password)
	if err != nil {
		return err
	}
	report := newContractReport(e, subject, len(rules))
	if f.junit != "" {
		file, err := os.Create(f.junit)
		if err != nil {
			return usagef("--junit: %w", err)
		}
		defer func() { err = errors.Join(err, report.writeJUnit(file), file.Close()) }()
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	opened, err := subject.open(ctx)
	if err != nil {
		return err
	}
	verdict := holdToContract(ctx, opened, rules, f.parallel, report)
	if err := opened.close(context.WithoutCancel(ctx)); err != nil {
		report.leftBehind(err)
	}
	return verdict
}

// check returns the rules to run, or what is wrong with the flags.
func (f *contractFlags) check(cmd *cobra.Command) ([]contracttest.Rule, error) {
	switch {
	case f.backend == "":
		return nil, usagef("--backend is needed: the store to hold to the contract, such as valkey://127.0.0.1:6379")
	case f.parallel < 1:
		return nil, usagef("--parallel must be at least 1, not %d", f.parallel)
	}
	if err := positive(cmd, "timeout"); err != nil {
		return nil, err
	}
	return matchRules(contracttest.Rules(), f.rules)
}

// matchRules returns the rules whose ids match one of the patterns, in the order
// of the table. A pattern that matches none is a slip, and a report without the
// rule that was meant would read as if it held.
func matchRules(all []contracttest.Rule, patterns string) ([]contracttest.Rule, error) {
	chosen := make([]bool, len(all))
	for pattern := range strings.SplitSeq(patterns, ",") {
		found := false
		for i, rule := range all {
			ok, err := path.Match(pattern, rule.ID)
			if err != nil {
				return nil, usagef("--rules: %q is no pattern; * stands for any text, ? for one character", pattern)
			}
			found, chosen[i] = found || ok, chosen[i] || ok
		}
		if !found {
			return nil, usagef("--rules: no rule matches %q; their names begin like %s", pattern, all[0].ID)
		}
	}
	var rules []contracttest.Rule
	for i, rule := range all {
		if chosen[i] {
			rules = append(rules, rule)
		}
	}
	return rules, nil
}

// brokenError says that the store does not keep the contract, or is not known
// to. Its exit code is that of anything that is not more special.
type brokenError struct{ broken, unrun, of int }

func (e *brokenError) Error() string {
	switch {
	case e.broken == 0:
		return fmt.Sprintf("%d of %d rules were not run to their end", e.unrun, e.of)
	case e.unrun == 0:
		return fmt.Sprintf("%d of %d rules do not hold", e.broken, e.of)
	}
	return fmt.Sprintf("%d of %d rules do not hold, and %d were not run to their end", e.broken, e.of, e.unrun)
}

// notReadyError says that the store could not be held to anything.
type notReadyError struct{ why string }

func (e *notReadyError) Error() string {
	return "the backend cannot serve, so that no rule was run: " + e.why
}
