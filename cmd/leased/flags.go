package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"leased/client"
	"leased/contract"
	"leased/gateway/api"
)

// defaultServer is where `leased serve` listens when told nothing.
const defaultServer = "http://127.0.0.1:8470"

// clientFlags are the flags that every client command has.
type clientFlags struct {
	env       *env
	server    string
	tokenFile string
	namespace string
	requestID string
	json      bool
	timeout   time.Duration
}

// retryFor keeps a command from trying a server that is not there for as long
// as its timeout: somebody waits at the terminal.
const retryFor = 2 * time.Second

func addClientFlags(e *env, cmd *cobra.Command) *clientFlags {
	f := &clientFlags{env: e}
	flags := cmd.Flags()
	flags.StringVar(&f.server, "server", defaultServer, "URL of the server, or several with commas between (LEASED_SERVER)")
	flags.StringVar(&f.tokenFile, "token-file", "", "file that holds the bearer token (LEASED_TOKEN_FILE)")
	flags.StringVar(&f.namespace, "namespace", defaultNamespace, "namespace (LEASED_NAMESPACE)")
	flags.BoolVar(&f.json, "json", false, "print JSON, as the HTTP API answers it")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long the command may take, retries included")
	flags.SortFlags = false
	return f
}

// addRequestID adds the flag of commands that change something.
func (f *clientFlags) addRequestID(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.requestID, "request-id", "",
		"name of this attempt; repeating a command with the same name repeats its answer (default random)")
}

// connect returns a client as the flags and, where a flag is not given, the
// environment say, and a context that ends after the timeout and wait together.
func (f *clientFlags) connect(cmd *cobra.Command, wait time.Duration) (context.Context, context.CancelFunc, *client.Client, error) {
	c, err := f.client(cmd)
	if err != nil {
		return nil, nil, nil, err
	}
	// Two of the longest durations together would be a negative one.
	ctx, cancel := context.WithTimeout(cmd.Context(), min(f.timeout, contract.MaxDuration)+min(wait, contract.MaxDuration))
	return ctx, cancel, c, nil
}

// client returns a client whose calls the timeout bounds where no context does.
func (f *clientFlags) client(cmd *cobra.Command) (*client.Client, error) {
	for name, value := range map[string]*string{"server": &f.server, "token-file": &f.tokenFile, "namespace": &f.namespace} {
		variable := envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if set := f.env.getenv(variable); set != "" && !cmd.Flags().Changed(name) {
			*value = set
		}
	}
	if f.timeout <= 0 {
		return nil, usagef("--timeout must be positive, not %s", f.timeout)
	}
	token, err := readToken(f.tokenFile)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Options{
		Servers: strings.Split(f.server, ","), Namespace: f.namespace, Token: token,
		Timeout: min(f.timeout, contract.MaxDuration), AttemptTimeout: min(f.timeout, client.DefaultAttemptTimeout), RetryFor: retryFor,
	})
	if err != nil {
		return nil, &usageError{err}
	}
	return c, nil
}

// readToken returns the token in file, or "" when there is no file. White space
// around it is dropped: editors end a file with a line break.
func readToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usagef("read the token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", usagef("read the token: %s is empty", file)
	}
	return token, nil
}

// keyFlags name a key.
type keyFlags struct {
	key    api.Key
	target string
}

func addKeyFlags(cmd *cobra.Command) *keyFlags {
	f := &keyFlags{}
	flags := cmd.Flags()
	flags.StringVar(&f.key.Tenant, "tenant", "", "tenant of the key")
	flags.StringVar(&f.key.Program, "program", "", `program of the key (default "default")`)
	flags.StringVar(&f.target, "target", "", "target of the key, as type:id; types are domain, ip, cidr, url, email and name")
	flags.StringVar(&f.key.Actor, "actor", "", "actor of the key")
	flags.StringVar(&f.key.Workflow, "workflow", "", `workflow of the key (default "default")`)
	flags.StringVar(&f.key.Operation, "operation", "", `operation of the key (default "default")`)
	return f
}

// given reports whether any part of a key was given.
func (f *keyFlags) given() bool { return f.key != (api.Key{}) || f.target != "" }

// read returns the key.
func (f *keyFlags) read() (api.Key, error) {
	var missing []string
	for _, part := range []struct{ name, value string }{
		{"--tenant", f.key.Tenant}, {"--target", f.target}, {"--actor", f.key.Actor},
	} {
		if part.value == "" {
			missing = append(missing, part.name)
		}
	}
	if len(missing) > 0 {
		return api.Key{}, usagef("a key needs %s", strings.Join(missing, " and "))
	}
	target, err := parseTarget(f.target)
	if err != nil {
		return api.Key{}, err
	}
	f.key.Target = target
	return f.key, nil
}

// parseTarget reads type:id. Only the first colon separates: IPv6 addresses and
// URLs have more.
func parseTarget(s string) (api.Target, error) {
	kind, id, ok := strings.Cut(s, ":")
	if !ok || kind == "" || id == "" {
		return api.Target{}, usagef("--target %q is not type:id, such as domain:example.com", s)
	}
	return api.Target{Type: kind, ID: id}, nil
}

// holderFlags are what a holder proves itself with.
type holderFlags struct {
	token    uint64
	instance string
}

func addHolderFlags(e *env, cmd *cobra.Command) *holderFlags {
	f := &holderFlags{}
	cmd.Flags().Uint64Var(&f.token, "token", 0, "fencing token of the lease, as acquire printed it")
	addInstanceFlag(e, cmd, &f.instance)
	return f
}

func addInstanceFlag(e *env, cmd *cobra.Command, instance *string) {
	cmd.Flags().StringVar(instance, "instance", "", "which process holds the lease; renew and release must name the same (default the host's name)")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *instance == "" {
			*instance = e.hostname
		}
		if *instance == "" {
			return usagef("--instance is needed: this host has no name")
		}
		return nil
	}
}

// jobFlags say what a lease is for.
type jobFlags struct{ meta []string }

func addJobFlags(cmd *cobra.Command, r *client.AcquireRequest) *jobFlags {
	f := &jobFlags{}
	flags := cmd.Flags()
	flags.DurationVar(&r.MaxLifetime, "max-lifetime", 0, "latest end of the lease however often it is renewed (default the namespace's)")
	flags.StringVar(&r.JobID, "job", "", "id of the job that the lease is for")
	flags.StringVar(&r.ExecutionID, "execution", "", "id of the execution that the lease is for")
	flags.StringArrayVar(&f.meta, "meta", nil, "name=value to keep with the lease; may be repeated")
	return f
}

// read completes the request that the flags are about.
func (f *jobFlags) read(cmd *cobra.Command, key *keyFlags, r *client.AcquireRequest) error {
	var err error
	if r.Key, err = key.read(); err != nil {
		return err
	}
	if err := positive(cmd, "ttl", "max-lifetime", "wait"); err != nil {
		return err
	}
	r.Metadata, err = parseMeta(f.meta)
	return err
}

func (f *holderFlags) check() error {
	if f.token == 0 {
		return usagef("--token is needed: the fencing token that acquire printed")
	}
	return nil
}

// leaseArg is the Args of a command on one lease.
func leaseArg(_ *cobra.Command, args []string) error {
	return oneArg(args, "LEASE_ID", "the lease's id, as acquire and list print it")
}

func oneArg(args []string, name, what string) error {
	switch len(args) {
	case 0:
		return usagef("%s is needed: %s", name, what)
	case 1:
		return nil
	}
	return usagef("only %s is expected, and %q came too", name, args[1])
}

// exactly returns the check of a command that takes these arguments.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is needed", strings.Join(names[len(args):], " and "))
		case len(args) > len(names):
			return usagef("only %s is expected, and %q came too", strings.Join(names, " and "), args[len(names)])
		}
		return nil
	}
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("no argument is expected, and %q came", args[0])
}

// positive refuses a duration that was given and is not positive; 0 would
// otherwise read as "the default".
func positive(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		d, err := cmd.Flags().GetDuration(name)
		if err != nil {
			return fmt.Errorf("flag %s: %w", name, err)
		}
		if cmd.Flags().Changed(name) && d <= 0 {
			return usagef("--%s must be positive, not %s", name, d)
		}
	}
	return nil
}
