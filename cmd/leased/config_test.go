package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// load reads a configuration from text, as if the file were leased.yaml.
func load(t *testing.T, text string, environ []string, flags ...override) (*settings, string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("leased.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := loadConfig("leased.yaml", environ, flags)
	if err != nil {
		return nil, err.Error()
	}
	return s, ""
}

// TestConfig_refusals holds each refusal to its text: the place, what is wrong
// and the remedy are what the operator works from.
func TestConfig_refusals(t *testing.T) {
	tests := []struct {
		name, file string
		env        []string
		flags      []override
		want       string
	}{
		{name: "unknown field with a likely spelling", file: "node:\n  id: a\nnamespaces:\n  jobs:\n    ttll: {max: 1h}\n",
			want: `leased.yaml:5: unknown field "ttll" in namespaces.jobs; did you mean "ttl"?`},
		{name: "unknown field like nothing", file: "log:\n  colour: red\n",
			want: `leased.yaml:2: unknown field "colour" in log; known are level, format`},
		{name: "unknown section", file: "htpp: {listen: 127.0.0.1:1}\n",
			want: `leased.yaml:1: unknown field "htpp"; did you mean "http"?`},
		{name: "another spelling of a name", file: "node: {ID: a}\n",
			want: `leased.yaml:1: unknown field "ID" in node; did you mean "id"?`},
		{name: "twice", file: "http:\n  listen: 127.0.0.1:1\n  listen: 127.0.0.1:2\n",
			want: `leased.yaml:3: http.listen is set twice, first at leased.yaml:2; remove one`},
		{name: "namespace twice", file: "namespaces:\n  a: {}\n  b: {}\n  a: {}\n",
			want: `leased.yaml:4: namespaces.a is set twice, first at leased.yaml:2; remove one`},
		{name: "not YAML", file: "node:\n\tid: a\n",
			want: `leased.yaml:2: not valid YAML: found character that cannot start any token`},
		{name: "two documents", file: "node: {id: a}\n---\nnode: {id: b}\n",
			want: `leased.yaml:2: a second document begins here; the configuration is one document`},
		{name: "a list at the top", file: "- a\n",
			want: `leased.yaml:1: the file must be a section of "name: value" entries`},
		{name: "a list for a section", file: "node: [a]\n",
			want: `leased.yaml:1: node must be a section of "name: value" entries`},
		{name: "a section for a value", file: "node:\n  id: {a: b}\n",
			want: `leased.yaml:2: node.id must be a single value, not a list or a section`},
		{name: "no value", file: "http:\n  listen:\n",
			want: `leased.yaml:2: http.listen has no value; give it one or remove the line`},
		{name: "anchor", file: "node: &n\n  id: a\n",
			want: `leased.yaml:1: node uses a YAML anchor or alias; write the value out`},
		{name: "tag", file: "node:\n  id: !!binary aGk=\n",
			want: `leased.yaml:2: node.id uses a YAML tag; write the value without`},
		{name: "flag that is not text", flags: []override{{[]string{"node", "data_dir"}, "\xff", "--node.data-dir"}},
			want: `--node.data-dir: node.data_dir is not valid UTF-8`},
		{name: "merge key", file: "node:\n  <<: {id: a}\n",
			want: `leased.yaml:2: merge keys are not supported; write the values out`},
		{name: "duration without a unit", file: "namespaces:\n  jobs:\n    max_wait: 30\n",
			want: `leased.yaml:3: namespaces.jobs.max_wait: "30" is not a duration; write a number with a unit, such as 500ms, 30s, 5m or 168h`},
		{name: "days", file: "namespaces:\n  jobs:\n    history: {keep: 7d}\n",
			want: `leased.yaml:3: namespaces.jobs.history.keep: "7d" is not a duration; write a number with a unit, such as 500ms, 30s, 5m or 168h`},
		{name: "negative duration", file: "namespaces: {jobs: {max_wait: -1s}}\n",
			want: `leased.yaml:1: namespaces.jobs.max_wait: -1s is negative; write a duration such as 30s`},
		{name: "text for a number", file: "cluster: {snapshot: {entries: many}}\n",
			want: `leased.yaml:1: cluster.snapshot.entries: "many" is not a whole number`},
		{name: "fraction for a number", file: "cluster: {snapshot: {entries: 1.5}}\n",
			want: `leased.yaml:1: cluster.snapshot.entries: "1.5" is not a whole number`},
		{name: "text for a switch", file: "insecure: maybe\n",
			want: `leased.yaml:1: insecure: "maybe" is neither true nor false`},
		{name: "a value for a list", file: "backends: {local: {type: raftkv, addresses: a}}\n",
			want: `leased.yaml:1: backends.local.addresses must be a list, such as [a, b]`},

		{name: "node id", file: "node: {id: \"a b\"}\n",
			want: `leased.yaml:1: node.id "a b" must be letters and digits, and ".", "_" or "-" after the first of them`},
		{name: "no data directory", file: "node: {data_dir: \"\"}\n",
			want: `leased.yaml:1: node.data_dir is empty; name the directory that the node keeps its data in`},
		{name: "address without a port", file: "http:\n  listen: localhost\n",
			want: `leased.yaml:2: http.listen: "localhost" is not host:port, such as 127.0.0.1:8470`},
		{name: "port out of range", file: "http:\n  listen: localhost:65536\n",
			want: `leased.yaml:2: http.listen: "localhost:65536" has no port from 0 to 65535`},
		{name: "open to others without authentication", file: "http:\n  listen: 0.0.0.0:8470\n",
			want: `leased.yaml:2: http.listen is 0.0.0.0:8470, which other machines can reach, and auth.mode is none: anyone there could take and revoke leases; listen on 127.0.0.1, or set insecure: true if something else protects the port`},
		{name: "all interfaces", file: "http: {listen: \":8470\"}\n",
			want: `leased.yaml:1: http.listen is :8470, which other machines can reach, and auth.mode is none: anyone there could take and revoke leases; listen on 127.0.0.1, or set insecure: true if something else protects the port`},
		{name: "half of TLS", file: "http:\n  tls:\n    cert: a.pem\n",
			want: `leased.yaml:3: http.tls needs both cert and key; give the missing one, or remove both for plain HTTP`},
		{name: "client certificates", file: "http:\n  tls:\n    client_ca: ca.pem\n",
			want: `leased.yaml:3: http.tls.client_ca: client certificates are not in this release; remove it`},

		{name: "several members", file: "cluster:\n  members: {n1: 127.0.0.1:8471, n2: 127.0.0.1:8481}\n",
			want: `leased.yaml:2: cluster.members names 2 nodes and cluster.listen is empty; set it to the address at which this node listens for the others, such as 127.0.0.1:8471`},
		{name: "another member", file: "cluster:\n  members: {n2: 127.0.0.1:8471}\n",
			want: `leased.yaml:2: cluster.members does not name this node, n1; add it with the address at which the others reach it, or set node.id`},
		{name: "member address", file: "cluster:\n  members:\n    n1: nowhere\n",
			want: `leased.yaml:3: cluster.members.n1: "nowhere" is not host:port, such as 127.0.0.1:8470`},
		{name: "open peer port", file: "cluster:\n  listen: 0.0.0.0:8471\n",
			want: `leased.yaml:2: cluster.listen is 0.0.0.0:8471, which other machines can reach, and there is no cluster.tls: anyone there could take and end leases; give cert, key and ca, or listen on 127.0.0.1`},
		{name: "half of the cluster's TLS", file: "cluster:\n  listen: 127.0.0.1:8471\n  tls: {cert: a, key: b}\n",
			want: `leased.yaml:3: cluster.tls needs cert, key and ca, because each node checks the others; give the missing ones, or remove all three and listen on 127.0.0.1`},
		{name: "cluster TLS without a port", file: "cluster:\n  tls: {cert: a, key: b, ca: c}\n",
			want: `leased.yaml:2: cluster.tls has no effect without cluster.listen; set that, or remove this`},
		{name: "snapshot entries", file: "cluster:\n  snapshot: {entries: 0}\n",
			want: `leased.yaml:2: cluster.snapshot.entries must be at least 1, not 0`},
		{name: "snapshot interval", file: "cluster:\n  snapshot: {interval: 1ms}\n",
			want: `leased.yaml:2: cluster.snapshot.interval must be at least 1s, not 1ms`},

		{name: "no type", file: "backends:\n  local: {}\n",
			want: `leased.yaml:2: backends.local has no type; use raftkv, valkey or etcd`},
		{name: "unknown type", file: "backends: {local: {type: redis}}\n",
			want: `leased.yaml:1: backends.local: unknown type "redis"; use raftkv, valkey or etcd`},
		{name: "raftkv takes nothing", file: "backends:\n  local: {type: raftkv, username: me}\n",
			want: `leased.yaml:2: backends.local: a raftkv backend is part of this process and takes no setting but type; remove the others`},
		{name: "two raft stores", file: "backends:\n  a: {type: raftkv}\n  b: {type: raftkv}\nnamespaces: {x: {backend: a}}\n",
			want: `leased.yaml:3: backends.b: a node has one raft store and backends.a is it; give both namespaces that backend`},
		{name: "cluster without a raft store", file: "backends: {c: {type: valkey, addresses: [\"a:1\"]}}\ncluster:\n  listen: 127.0.0.1:8471\n",
			want: `leased.yaml:3: cluster has no effect: no backend has the type raftkv; remove it, or add such a backend`},
		{name: "no servers", file: "backends:\n  c: {type: valkey}\n",
			want: `leased.yaml:2: backends.c.addresses is missing; list the servers, such as [127.0.0.1:6379]`},
		{name: "no endpoints", file: "backends:\n  c: {type: etcd}\n",
			want: `leased.yaml:2: backends.c.endpoints is missing; list the servers, such as [127.0.0.1:2379]`},
		{name: "another backend's setting", file: "backends:\n  c:\n    type: etcd\n    endpoints: [\"a:1\"]\n    replica_acks: 1\n",
			want: `leased.yaml:5: backends.c.replica_acks is no setting of a backend of type etcd, which takes endpoints, username, password_file, tls, prefix; remove it`},
		{name: "a server without a port", file: "backends:\n  c:\n    type: valkey\n    addresses:\n    - a\n",
			want: `leased.yaml:5: backends.c.addresses: "a" is not host:port, such as 127.0.0.1:6379`},
		{name: "a server twice", file: "backends:\n  c: {type: valkey, addresses: [\"a:1\", \"a:1\"]}\n",
			want: `leased.yaml:2: backends.c.addresses names a:1 twice; remove one`},
		{name: "a URL for a server", file: "backends:\n  c: {type: etcd, endpoints: [\"https://a:2379\"]}\n",
			want: `leased.yaml:2: backends.c.endpoints: an address is host:port and no URL; write "a:2379", and say tls: {enabled: true} for TLS`},
		{name: "a password in an address", file: "backends:\n  c: {type: valkey, addresses: [\"valkey://me:secret@a:1\"]}\n",
			want: `leased.yaml:2: backends.c.addresses: an address holds a user name or password; put them into username and password_file`},
		{name: "a user without a password", file: "backends:\n  c: {type: etcd, endpoints: [\"a:1\"], username: me}\n",
			want: `leased.yaml:2: backends.c.username has no password_file beside it; name the file that holds the password`},
		{name: "half of a certificate", file: "backends:\n  c: {type: etcd, endpoints: [\"a:1\"], tls: {cert: c.pem}}\n",
			want: `leased.yaml:2: backends.c.tls needs both cert and key; give the missing one, or remove both to connect without a certificate of one's own`},
		{name: "TLS on and off", file: "backends:\n  c: {type: etcd, endpoints: [\"a:1\"], tls: {enabled: false, ca: c.pem}}\n",
			want: `leased.yaml:2: backends.c.tls.enabled is false and ca or cert is given; remove one of the two`},
		{name: "a name for no TLS", file: "backends:\n  c: {type: etcd, endpoints: [\"a:1\"], tls: {server_name: a}}\n",
			want: `leased.yaml:2: backends.c.tls.server_name has no effect without TLS; set enabled: true, or remove it`},
		{name: "prefix", file: "backends:\n  c: {type: etcd, endpoints: [\"a:1\"], prefix: \"a/b\"}\n",
			want: `leased.yaml:2: backends.c.prefix "a/b" must be letters and digits, and ".", "_" or "-" after the first of them`},
		{name: "a sentinel's user without a sentinel", file: "backends:\n  c: {type: valkey, addresses: [\"a:1\"], sentinel_password_file: f}\n",
			want: `leased.yaml:2: backends.c: sentinel_username and sentinel_password_file need sentinel_master, the name under which the sentinels know the primary`},
		{name: "negative acknowledgements", file: "backends:\n  c: {type: valkey, addresses: [\"a:1\"], replica_acks: -1}\n",
			want: `leased.yaml:2: backends.c.replica_acks is -1; it is how many replicas must have a grant before it is answered: 0, for none, to 16`},
		{name: "a wait for no acknowledgement", file: "backends:\n  c: {type: valkey, addresses: [\"a:1\"], replica_ack_timeout: 1s}\n",
			want: `leased.yaml:2: backends.c.replica_ack_timeout has no effect without replica_acks; set that, or remove this`},

		{name: "namespace of no backend", file: "namespaces:\n  jobs: {backend: cache}\n",
			want: `leased.yaml:2: namespaces.jobs.backend: there is no backend "cache"; use one of local, or add it under backends`},
		{name: "namespace name", file: "namespaces:\n  a/b: {}\n",
			want: `leased.yaml:2: the namespace's name "a/b" must be letters and digits, and ".", "_" or "-" after the first of them`},
		{name: "namespace that the metrics have", file: "namespaces:\n  unknown: {}\n",
			want: `leased.yaml:2: the namespace's name "unknown" stands for all unknown namespaces in the metrics; choose another name`},
		{name: "fallback", file: "namespaces:\n  jobs:\n    fallback: {backend: local}\n",
			want: `leased.yaml:3: namespaces.jobs.fallback is not in this release; remove it`},
		{name: "ttl of zero", file: "namespaces:\n  jobs:\n    ttl: {min: 0s}\n",
			want: `leased.yaml:3: namespaces.jobs.ttl.min is 0s; it must be 1ms to 87600h0m0s`},
		{name: "default below the minimum", file: "namespaces:\n  jobs:\n    ttl: {min: 1m, default: 1s}\n",
			want: `leased.yaml:3: namespaces.jobs.ttl.default is 1s, less than ttl.min, 1m0s`},
		{name: "default above the maximum", file: "namespaces:\n  jobs:\n    ttl: {max: 10s}\n",
			want: `leased.yaml:3: namespaces.jobs.ttl.default is 30s, more than ttl.max, 10s; that is its default, so set it too`},
		{name: "TTL longer than a life", file: "namespaces:\n  jobs:\n    ttl: {max: 1h}\n    max_lifetime: 30m\n",
			want: `leased.yaml:4: namespaces.jobs.max_lifetime is 30m0s, less than ttl.max, 1h0m0s`},
		{name: "a life without end", file: "namespaces:\n  jobs:\n    max_lifetime: 100000h\n",
			want: `leased.yaml:3: namespaces.jobs.max_lifetime is 100000h0m0s; it must be 1ms to 87600h0m0s`},
		{name: "history rows", file: "namespaces:\n  jobs:\n    history: {per_key: 1}\n",
			want: `leased.yaml:3: namespaces.jobs.history.per_key is 1; it must be 2 to 65536`},
		{name: "answers forgotten too soon", file: "namespaces:\n  jobs:\n    idempotency: {keep: 1m}\n",
			want: `leased.yaml:3: namespaces.jobs.idempotency.keep is 1m0s; it must be 10m0s to 87600h0m0s`},
		{name: "negative quota", file: "namespaces:\n  jobs:\n    quotas: {leases_per_owner: -1}\n",
			want: `leased.yaml:3: namespaces.jobs.quotas.leases_per_owner is -1; it must not be negative, and 0 means unlimited`},

		{name: "keys", file: "auth:\n  mode: keys\n  keys_file: keys.yaml\n",
			want: `leased.yaml:2: auth.mode: keys is not in this release; use none, and keep the server on loopback`},
		{name: "unknown mode", file: "auth: {mode: off}\n",
			want: `leased.yaml:1: auth.mode: unknown mode "off"; use none`},
		{name: "roles that nobody asks", file: "auth:\n  roles:\n    worker: [{namespaces: [a], verbs: [list]}]\n",
			want: `leased.yaml:3: auth.roles has no effect while auth.mode is none; remove it`},
		{name: "log level", file: "log: {level: loud}\n",
			want: `leased.yaml:1: log.level: unknown level "loud"; use debug, info, warn, error`},
		{name: "log format", file: "log: {format: xml}\n",
			want: `leased.yaml:1: log.format: unknown format "xml"; use text or json`},

		{name: "from a variable", env: []string{"LEASED_HTTP_LISTEN=nowhere"},
			want: `LEASED_HTTP_LISTEN: http.listen: "nowhere" is not host:port, such as 127.0.0.1:8470`},
		{name: "a variable of a section that names nothing", env: []string{"LEASED_HTTP_LISTN=127.0.0.1:1"},
			want: `LEASED_HTTP_LISTN: names no setting; the variable of namespaces.jobs.ttl.max is LEASED_NAMESPACES_JOBS_TTL_MAX`},
		{name: "from a flag", flags: []override{{[]string{"log", "level"}, "loud", "--log.level"}},
			want: `--log.level: log.level: unknown level "loud"; use debug, info, warn, error`},
		{name: "all of them at once", file: "node: {id: \"\"}\nlog: {level: loud}\n",
			want: "leased.yaml:1: node.id must have 1 to 64 characters, not 0\n" +
				`leased.yaml:2: log.level: unknown level "loud"; use debug, info, warn, error`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, got := load(t, tt.file, tt.env, tt.flags...)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConfig_defaults(t *testing.T) {
	for _, file := range []string{"", "# nothing\n", "http:\nnode: {}\n", "namespaces: {}\nbackends: {}\n"} {
		got, problem := load(t, file, nil)
		if problem != "" {
			t.Fatalf("%q: %s", file, problem)
		}
		want := defaultConfig()
		want.Backends = map[string]backendConfig{"local": {Type: "raftkv"}}
		var ns namespaceConfig
		ns.setDefaults()
		ns.Backend = "local"
		want.Namespaces = map[string]namespaceConfig{"default": ns}
		if diff := cmp.Diff(want, got.config); diff != "" {
			t.Errorf("%q (-want +got):\n%s", file, diff)
		}
	}
}

func TestConfig_missingFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.yaml")
	_, err := loadConfig(file, nil, nil)
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error that names %s", err, file)
	}
}

// TestConfig_everyField reads a file with every field that this release serves.
func TestConfig_everyField(t *testing.T) {
	got, problem := load(t, `
node: {id: a-1, data_dir: /var/lib/leased}
http: {listen: "[::1]:9000", tls: {cert: c.pem, key: k.pem, client_ca: ""}}
cluster:
  listen: 127.0.0.1:8471
  members: {a-1: 127.0.0.1:8471}
  snapshot: {entries: 100, interval: 30s}
  tls: {cert: "", key: "", ca: ""}
backends:
  store: {type: raftkv}
  cache:
    type: valkey
    addresses: [a:6379, "[::1]:6380"]
    username: me
    password_file: p
    tls: {enabled: true, ca: ca.pem, cert: c.pem, key: k.pem, server_name: s}
    prefix: team-a
    sentinel_master: m
    sentinel_username: su
    sentinel_password_file: sp
    replica_acks: 1
    replica_ack_timeout: 2s
  coord: {type: etcd, endpoints: [b:2379], username: me, password_file: p, tls: {enabled: true}, prefix: team-a}
namespaces:
  jobs:
    backend: store
    ttl: {min: 100ms, default: 20s, max: 30m}
    max_lifetime: 2h
    max_wait: 1m
    history: {keep: 24h, per_key: 8}
    idempotency: {keep: 11m}
    quotas: {leases_per_owner: 5, waiters_per_key: 6}
  team.a_b-c: {backend: store}
auth: {mode: none}
insecure: true
log: {level: debug, format: json}
audit: {file: audit.log}
`, nil)
	if problem != "" {
		t.Fatal(problem)
	}
	var plain namespaceConfig
	plain.setDefaults()
	plain.Backend = "store"
	want := config{
		Node: nodeConfig{ID: "a-1", DataDir: "/var/lib/leased"},
		HTTP: httpConfig{Listen: "[::1]:9000", TLS: httpTLSConfig{Cert: "c.pem", Key: "k.pem"}},
		Cluster: clusterConfig{
			Listen: "127.0.0.1:8471", Members: map[string]string{"a-1": "127.0.0.1:8471"},
			Snapshot: snapshotConfig{Entries: 100, Interval: duration(30 * time.Second)},
		},
		Backends: map[string]backendConfig{
			"store": {Type: "raftkv"},
			"cache": {
				Type: "valkey", Addresses: []string{"a:6379", "[::1]:6380"}, Username: "me", PasswordFile: "p",
				TLS:    backendTLSConfig{Enabled: true, CA: "ca.pem", Cert: "c.pem", Key: "k.pem", ServerName: "s"},
				Prefix: "team-a", SentinelMaster: "m", SentinelUsername: "su", SentinelPasswordFile: "sp",
				ReplicaAcks: 1, ReplicaAckTimeout: duration(2 * time.Second),
			},
			"coord": {
				Type: "etcd", Endpoints: []string{"b:2379"}, Username: "me", PasswordFile: "p",
				TLS: backendTLSConfig{Enabled: true}, Prefix: "team-a",
			},
		},
		Namespaces: map[string]namespaceConfig{
			"team.a_b-c": plain,
			"jobs": {
				Backend: "store",
				TTL: ttlConfig{
					Min: duration(100 * time.Millisecond), Default: duration(20 * time.Second), Max: duration(30 * time.Minute),
				},
				MaxLifetime: duration(2 * time.Hour),
				MaxWait:     duration(time.Minute),
				History:     historyConfig{Keep: duration(24 * time.Hour), PerKey: 8},
				Idempotency: idempotencyConfig{Keep: duration(11 * time.Minute)},
				Quotas:      quotasConfig{LeasesPerOwner: 5, WaitersPerKey: 6},
			},
		},
		Auth:     authConfig{Mode: "none"},
		Insecure: true,
		Log:      logConfig{Level: "debug", Format: "json"},
		Audit:    auditConfig{File: "audit.log"},
	}
	if diff := cmp.Diff(want, got.config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

// TestConfig_documented feeds the file of the documentation, which shows the
// settings of every feature. What this release does not have is refused, and
// only that.
func TestConfig_documented(t *testing.T) {
	text, err := os.ReadFile("testdata/documented.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, got := load(t, string(text), nil)
	want := strings.Join([]string{
		"leased.yaml:26: namespaces.jobs.fallback is not in this release; remove it",
		"leased.yaml:28: auth.mode: keys is not in this release; use none, and keep the server on loopback",
	}, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

func TestConfig_precedence(t *testing.T) {
	file := "http: {listen: 127.0.0.1:1}\nlog: {level: error, format: json}\naudit: {file: a.log}\n"
	env := []string{"LEASED_HTTP_LISTEN=127.0.0.1:2", "LEASED_LOG_LEVEL=warn", "LEASED_AUDIT_FILE="}
	got, problem := load(t, file, env, override{[]string{"http", "listen"}, "127.0.0.1:3", "--http.listen"})
	if problem != "" {
		t.Fatal(problem)
	}
	if got.HTTP.Listen != "127.0.0.1:3" {
		t.Errorf("flag over variable over file: listen is %s, want 127.0.0.1:3", got.HTTP.Listen)
	}
	if got.Log.Level != "warn" {
		t.Errorf("variable over file: level is %s, want warn", got.Log.Level)
	}
	if got.Log.Format != "json" {
		t.Errorf("file over default: format is %s, want json", got.Log.Format)
	}
	if got.Audit.File != "a.log" {
		t.Errorf("an empty variable counts as unset: audit.file is %q, want a.log", got.Audit.File)
	}
	if got, problem = load(t, file, nil, override{[]string{"audit", "file"}, "", "--audit.file"}); problem != "" || got.Audit.File != "" {
		t.Errorf("an empty flag is a value: audit.file is not empty, or %s", problem)
	}
}
