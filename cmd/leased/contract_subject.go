package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"

	"leased/contract"
	"leased/contract/contracttest"
)

// scratchNamespace is where the suite asks for the store's health; the rules
// have namespaces of their own.
const scratchNamespace = "leased-contract"

// subjectName is what the backend under test is called where a configuration
// would name it.
const subjectName = "suite"

// subject is a backend that the suite is to run on, as the command line names
// it.
type subject struct {
	kind  string
	shown string // the servers or the directory: never a credential
	dir   string // raftkv
	// backend is the configuration of a server of others.
	backend backendConfig
}

// openSubject is a subject that is being tested.
type openSubject struct {
	name       string
	guarantees contract.Guarantees
	// restarts tells that a rule about restarts does restart the store, and does
	// not only drop every connection to it.
	restarts bool
	// store opens a handle for the suite itself.
	store func() (contract.Store, error)
	// harness returns what makes the harness of one rule.
	harness func(rule contracttest.Rule) func(contracttest.TB) *contracttest.Harness
	// close removes everything that the suite wrote.
	close func(context.Context) error
}

// newSubject reads the URL of a backend. No error shows the URL, which may hold
// a password for all that its author knows.
func newSubject(backend, passwordFile string) (*subject, error) {
	kind, rest, ok := strings.Cut(backend, "://")
	if _, known := backendSettings(kind); !ok || !known {
		return nil, usagef("--backend is no URL that begins with valkey://, etcd:// or raftkv://")
	}
	if kind == backendRaftKV {
		return newRaftSubject(rest, passwordFile)
	}
	rest, query, _ := strings.Cut(rest, "?")
	servers, path, _ := strings.Cut(rest, "/")
	switch {
	case strings.Contains(servers, "@"):
		return nil, usagef("--backend holds a user name or password, which others could read in the list of processes; " +
			"say ?username=NAME and --password-file FILE")
	case path != "":
		return nil, usagef("--backend has a path after its servers; %s takes none", kind)
	}
	set, err := queryOverrides(kind, query)
	if err != nil {
		return nil, err
	}
	list := "addresses"
	if kind == backendEtcd {
		list = "endpoints"
	}
	at := func(field, value, origin string) override {
		return override{path: []string{"backends", subjectName, field}, value: value, origin: origin}
	}
	set = append(set, at("type", kind, "--backend"))
	if servers != "" {
		set = append(set, at(list, servers, "--backend"))
	}
	if passwordFile != "" {
		set = append(set, at("password_file", passwordFile, "--password-file"))
	}
	s, err := loadConfig("", nil, set)
	if err != nil {
		return nil, &usageError{errors.New(strings.ReplaceAll(err.Error(), "backends."+subjectName+".", ""))}
	}
	return &subject{kind: kind, shown: kind + "://" + servers, backend: s.Backends[subjectName]}, nil
}

// queryOverrides reads the settings in the query of a URL.
func queryOverrides(kind, query string) ([]override, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, usagef("--backend: what follows the ? is not name=value&name=value")
	}
	known := querySettings(kind)
	var set []override
	for name, given := range values {
		switch {
		case slices.Contains(known, name) && len(given) == 1:
		case slices.Contains(known, name):
			return nil, usagef("--backend sets %s twice; remove one", name)
		case strings.Contains(strings.ToLower(name), "pass"):
			return nil, usagef("--backend holds a password, which others could read in the list of processes; say --password-file FILE")
		default:
			return nil, usagef("--backend: unknown setting %q; known are %s", name, strings.Join(known, ", "))
		}
		path := append([]string{"backends", subjectName}, strings.Split(name, ".")...)
		set = append(set, override{path: path, value: given[0], origin: "--backend"})
	}
	slices.SortFunc(set, func(a, b override) int { return strings.Compare(dotted(a.path), dotted(b.path)) })
	return set, nil
}

// querySettings returns the names that the query of a URL may set.
func querySettings(kind string) []string {
	fields, _ := backendSettings(kind)
	var names []string
	for _, leaf := range leaves(configType(), nil) {
		if leaf[0] != "backends" || !slices.Contains(fields, leaf[2]) || leaf[2] == "addresses" || leaf[2] == "endpoints" {
			continue
		}
		names = append(names, dotted(leaf[2:]))
	}
	return names
}

func newRaftSubject(dir, passwordFile string) (*subject, error) {
	switch {
	case dir == "":
		return nil, usagef("--backend raftkv:// needs a directory, such as raftkv:///mnt/disk or raftkv://./scratch")
	case passwordFile != "":
		return nil, usagef("--password-file has no effect on raftkv; remove it")
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, usagef("--backend: %w", err)
	} else if !info.IsDir() {
		return nil, usagef("--backend: %s is no directory", dir)
	}
	return &subject{kind: backendRaftKV, shown: backendRaftKV + "://" + dir, dir: dir}, nil
}

// open starts what the suite needs.
func (s *subject) open(ctx context.Context) (*openSubject, error) {
	if s.kind == backendRaftKV {
		return openRaftSubject(ctx, s)
	}
	return openRemoteSubject(s)
}
