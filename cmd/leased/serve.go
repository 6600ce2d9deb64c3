package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

func newServe(e *env) *cobra.Command {
	var (
		file        string
		check, show bool
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node: the HTTP gateway and its store",
		Long: `Run a node. Told nothing, it keeps its data in ./leased-data, listens on
127.0.0.1:8470 and serves the namespace "default" to whoever can reach it, which
is this machine.

Every setting of the configuration file has a flag, its path in the file with
"-" for "_", and a variable, LEASED_ and its path with "_" for ".". A flag wins
over a variable, a variable over the file. Settings of one namespace or backend
work the same way:

  --namespaces.jobs.ttl.max=2h    LEASED_NAMESPACES_JOBS_TTL_MAX=2h

SIGINT or SIGTERM ends the node in order: waiting calls are answered, running
ones finish. A second signal ends it at once.`,
		Example: `  leased serve
  leased serve -c leased.yaml
  leased serve --http.listen 127.0.0.1:9000 --node.data-dir /var/lib/leased
  leased serve -c leased.yaml --check`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&file, "config", "c", "", "configuration file (LEASED_CONFIG)")
	flags.BoolVar(&check, "check", false, "read the configuration, say what is wrong with it, and exit")
	flags.BoolVar(&show, "print-config", false, "print the configuration as it would be used, and exit")
	settings := addSettingFlags(flags, e.args)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			file = e.getenv("LEASED_CONFIG")
		}
		s, err := loadConfig(file, e.environ, settings.overrides())
		if err != nil {
			return &usageError{err}
		}
		switch {
		case show:
			return printConfig(e, s)
		case check:
			_, err := fmt.Fprintln(e.stdout, "the configuration is valid")
			return err
		}
		return serve(cmd.Context(), e, s)
	}
	return cmd
}

// serve runs a node until ctx ends.
func serve(ctx context.Context, e *env, s *settings) error {
	pacing, stop := context.WithCancel(ctx)
	wait := paceCollector(pacing, e.getenv)
	defer func() { stop(); wait() }()
	a, err := openApp(ctx, e, s)
	if err != nil {
		return err
	}
	if err := a.announcement(e.version, a.address).print(e.stdout); err != nil {
		a.log.Warn("nobody reads the standard output", "error", err)
	}
	a.log.Info("serving", "address", a.address)
	err = a.wait(ctx)
	if ctx.Err() != nil {
		a.log.Info("stopping; the same signal again stops at once")
	}
	err = errors.Join(err, a.close(ctx))
	a.log.Info("stopped")
	return err
}

// settingFlags are the flags that stand for settings of the file.
type settingFlags struct {
	flags *pflag.FlagSet
	path  map[string][]string // flag → path in the file
}

// addSettingFlags adds a flag for each setting. The names of namespaces,
// backends and members are the operator's own, so that their flags can only be
// known from the arguments themselves.
func addSettingFlags(flags *pflag.FlagSet, args []string) *settingFlags {
	f := &settingFlags{flags: flags, path: map[string][]string{}}
	described := describedSettings()
	var plain [][]string
	for _, leaf := range leaves(configType(), nil) {
		if !slices.Contains(leaf, anyName) {
			plain = append(plain, leaf)
		}
	}
	// What has a description stands in the help, in the order of the file. The
	// rest is read, so that its refusal can say more than "unknown flag".
	for _, leaf := range plain {
		f.add(flagName(leaf), leaf, described[dotted(leaf)])
	}
	asIs := func(_, name string) (string, bool) { return name, false }
	for _, arg := range args {
		name, ok := strings.CutPrefix(arg, "--")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, "=")
		if path, ok := matchName(name, flagName, asIs); ok && f.path[name] == nil {
			f.add(name, path, "")
		}
	}
	return f
}

func (f *settingFlags) add(name string, path []string, usage string) {
	f.path[name] = path
	flag := f.flags.VarPF(&settingValue{kind: leafType(path)}, name, "", usage)
	flag.Hidden = usage == ""
	if leafType(path).Kind() == reflect.Bool {
		flag.NoOptDefVal = "true"
	}
}

// settingValue keeps what was typed. It is read together with the rest of the
// configuration, whose refusals have a remedy.
type settingValue struct {
	text string
	kind reflect.Type
}

func (v *settingValue) Set(s string) error { v.text = s; return nil }
func (v *settingValue) String() string     { return v.text }

// Type is the word in the help that stands for the value.
func (v *settingValue) Type() string { return v.kind.Name() }

// overrides returns the settings that were given.
func (f *settingFlags) overrides() []override {
	var set []override
	f.flags.Visit(func(flag *pflag.Flag) {
		if path, ok := f.path[flag.Name]; ok {
			set = append(set, override{path: path, value: flag.Value.String(), origin: "--" + flag.Name})
		}
	})
	return set
}

// describedSettings are the settings that the help lists.
func describedSettings() map[string]string {
	return map[string]string{
		"node.id":                   `name of the node, for ever (default "n1")`,
		"node.data_dir":             `directory of the node's data (default "./leased-data")`,
		"http.listen":               `address of the HTTP API (default "127.0.0.1:8470")`,
		"http.tls.cert":             "certificate file of the HTTP API; without one it is plain HTTP",
		"http.tls.key":              "key file of that certificate",
		"cluster.listen":            "address for other nodes (default none)",
		"cluster.snapshot.entries":  "take a snapshot after so many log entries (default 8192)",
		"cluster.snapshot.interval": "and at least this often (default 2m)",
		"insecure":                  "serve without authentication on an address that other machines can reach",
		"log.level":                 `debug, info, warn or error (default "info")`,
		"log.format":                `text or json (default "text")`,
		"audit.file":                "file of the audit log (default none)",
	}
}

func printConfig(e *env, s *settings) error {
	enc := yaml.NewEncoder(e.stdout)
	enc.SetIndent(2)
	if err := enc.Encode(s.config); err != nil {
		return err
	}
	return enc.Close()
}
