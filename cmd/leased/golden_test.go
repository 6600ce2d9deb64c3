package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// golden compares got with a file under testdata/golden. Setting
// LEASED_UPDATE_GOLDEN writes the files instead; the diff is then reviewed like
// any other change.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".txt")
	if os.Getenv("LEASED_UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// result is what a command did.
type result struct {
	code           int
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit %d\n--- stdout\n%s--- stderr\n%s", r.code, r.stdout, r.stderr)
}

// command runs a whole command in this process, with a fixed host name, clock
// and environment.
func command(ctx context.Context, environ []string, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, &env{
		args: args, environ: environ, stdout: &stdout, stderr: &stderr, hostname: "host-1", version: "v1.2.3",
		now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) },
	})
	return result{code, stdout.String(), stderr.String()}
}

// TestHelp holds every help text: it is where most people learn the command.
func TestHelp(t *testing.T) {
	for _, name := range []string{
		"", "serve", "contract", "acquire", "renew", "release", "get", "list", "history", "watch", "check", "revoke", "run", "version",
		"cluster", "cluster status", "cluster add", "cluster remove", "cluster transfer", "cluster backup", "cluster restore",
	} {
		t.Run(strings.TrimSpace("leased "+name), func(t *testing.T) {
			got := command(t.Context(), nil, strings.Fields(name+" --help")...)
			if got.code != 0 || got.stderr != "" {
				t.Errorf("got exit %d and %q on standard error, want 0 and nothing", got.code, got.stderr)
			}
			if name != "" && !strings.Contains(got.stdout, "leased "+name) {
				t.Errorf("the help has no example of leased %s", name)
			}
			golden(t, "help/"+orName(name, "leased"), got.stdout)
		})
	}
}

func orName(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return name
}

// TestUsage holds what wrong usage is told, and that it is exit code 2 and
// reaches no server.
func TestUsage(t *testing.T) {
	const key = " --tenant acme --target name:x --actor a"
	tests := []struct{ args, want string }{
		{"acquir", `there is no command "acquir"; did you mean acquire?`},
		{"nonsense", `there is no command "nonsense"`},
		{"help nonsense", `there is no command "nonsense"`},
		{"acquire --nonsense", "unknown flag: --nonsense"},
		{"acquire --ttl 5" + key, `--ttl: "5" is not a duration; write a number with a unit, such as 500ms, 30s, 5m or 168h`},
		{"acquire --json=maybe" + key, `--json: "maybe" is neither true nor false`},
		{"acquire --instance=" + key, "--instance is empty; leave it out, or give it a value"},
		{"acquire --program=" + key, "--program is empty; leave it out, or give it a value"},
		{"acquire --namespace=" + key, "--namespace is empty; leave it out, or give it a value"},
		{"acquire --request-id=" + key, "--request-id is empty; leave it out, or give it a value"},
		{"acquire --token-file=" + key, "--token-file is empty; leave it out, or give it a value"},
		{"acquire", "a key needs --tenant and --target and --actor"},
		{"acquire --tenant acme --actor a", "a key needs --target"},
		{"acquire --tenant acme --target x --actor a", `--target "x" is not type:id, such as domain:example.com`},
		{"acquire --tenant acme --target :x --actor a", `--target ":x" is not type:id, such as domain:example.com`},
		{"acquire x" + key, `no argument is expected, and "x" came`},
		{"acquire --ttl 0s" + key, "--ttl must be positive, not 0s"},
		{"acquire --wait -1s" + key, "--wait must be positive, not -1s"},
		{"acquire --max-lifetime 0" + key, "--max-lifetime must be positive, not 0s"},
		{"acquire --meta a" + key, `--meta "a" is not name=value`},
		{"acquire --meta a=1 --meta a=2" + key, `--meta names "a" twice`},
		{"acquire --timeout 0s" + key, "--timeout must be positive, not 0s"},
		{"acquire --server nowhere" + key, `client: server "nowhere": not a URL such as http://127.0.0.1:8470`},
		{"acquire --token-file none" + key, "read the token: open none: no such file or directory"},
		{"acquire --token-file /dev/null" + key, "read the token: /dev/null is empty"},
		{"renew --token 1", "LEASE_ID is needed: the lease's id, as acquire and list print it"},
		{"renew L", "--token is needed: the fencing token that acquire printed"},
		{"renew L M --token 1", `only LEASE_ID is expected, and "M" came too`},
		{"renew L --token 1 --ttl 0s", "--ttl must be positive, not 0s"},
		{"renew L --token -1", `--token: "-1" is not a whole number, not negative`},
		{"release L", "--token is needed: the fencing token that acquire printed"},
		{"get", "LEASE_ID is needed: the lease's id, as acquire and list print it"},
		{"list --tenant=", "--tenant is empty; leave it out, or give it a value"},
		{"list --limit x", `--limit: "x" is not a whole number`},
		{"list --limit 0", "--limit must be at least 1, not 0"},
		{"list --expires-before soon", `"soon" is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 30s`},
		{"list --target x", `--target "x" is not type:id, such as domain:example.com`},
		{"watch K --tenant acme", "name the key by KEY_ID or by flags, not by both"},
		{"watch --limit 0", "--limit must be at least 1, not 0"},
		{"watch --timeout 0s", "--timeout must be positive, not 0s"},
		{"watch --after=", "--after is empty; leave it out, or give it a value"},
		{"watch --event=", "--event is empty; leave it out, or give it a value"},
		{"watch --event=expired --event=", "--event is empty; leave it out, or give it a value"},
		{"history", "name the key: KEY_ID, or --tenant, --target and --actor"},
		{"history K --tenant acme", "name the key by KEY_ID or by flags, not by both"},
		{"history K --limit -1", "--limit must be at least 1, not -1"},
		{"check K", "--token is needed: the fencing token to check"},
		{"check --tenant acme --token 1", "a key needs --target and --actor"},
		{"revoke L", "--reason is needed: the history keeps it for whoever asks later"},
		{"run" + key, "a command to run is needed, after --"},
		{"run -- true", "a key needs --tenant and --target and --actor"},
		{"run --margin 0s" + key + " -- true", "--margin must be positive, not 0s"},
		{"run" + key + " -- ./nosuch", `the command cannot be run: exec: "./nosuch": stat ./nosuch: no such file or directory`},
		{"supervise x", "SOCKET is not the number of an open file: leased run starts this command"},
		{"version x", `no argument is expected, and "x" came`},
		{"serve x", `no argument is expected, and "x" came`},
		{"serve --config=", "--config is empty; leave it out, or give it a value"},
		{"serve --namespaces.jobs.ttl.maxx 1s", "unknown flag: --namespaces.jobs.ttl.maxx"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			got := command(t.Context(), []string{"LEASED_SERVER=http://127.0.0.1:1"}, strings.Fields(tt.args)...)
			first, rest, _ := strings.Cut(got.stderr, "\n")
			if want := "error: " + tt.want; first != want {
				t.Errorf("got %q, want %q", first, want)
			}
			if got.code != exitUsage {
				t.Errorf("got exit code %d, want %d", got.code, exitUsage)
			}
			if got.stdout != "" {
				t.Errorf("standard output has %q, want nothing", got.stdout)
			}
			if !strings.HasPrefix(rest, "see leased") {
				t.Errorf("the error ends with %q, want where to read more", rest)
			}
		})
	}
}

func TestUsage_noHostname(t *testing.T) {
	var stderr bytes.Buffer
	code := run(t.Context(), &env{
		args: []string{"renew", "L", "--token", "1"}, stdout: &stderr, stderr: &stderr, now: time.Now,
	})
	if code != exitUsage || !strings.Contains(stderr.String(), "--instance is needed") {
		t.Errorf("got exit %d and %q, want 2 and that --instance is needed", code, stderr.String())
	}
}

// TestServe_config: what --print-config prints is a configuration file, and of
// the same settings.
func TestServe_config(t *testing.T) {
	t.Chdir(t.TempDir())
	args := []string{
		"--namespaces.my_jobs.ttl.max", "2h", "--namespaces.my_jobs.max-wait=0s", "--insecure", "--log.level=debug",
		"--cluster.members.n1=127.0.0.1:8471", "--http.tls.cert=a", "--http.tls.key=b",
	}
	first := command(t.Context(), nil, append([]string{"serve", "--print-config"}, args...)...)
	if first.code != 0 {
		t.Fatal(first)
	}
	if err := os.WriteFile("leased.yaml", []byte(first.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	second := command(t.Context(), nil, "serve", "--print-config", "-c", "leased.yaml")
	if diff := cmp.Diff(first, second, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("printed, read and printed again (-first +second):\n%s", diff)
	}
	for _, want := range []string{"my_jobs:", "max: 2h0m0s", "max_wait: 0s", "insecure: true", "level: debug", "n1: 127.0.0.1:8471"} {
		if !strings.Contains(first.stdout, want) {
			t.Errorf("%q is not in the printed configuration:\n%s", want, first.stdout)
		}
	}
	got := command(t.Context(), []string{"LEASED_CONFIG=leased.yaml", "LEASED_LOG_LEVEL=loud"}, "serve", "--check")
	if want := "error: LEASED_LOG_LEVEL: log.level: unknown level \"loud\"; use debug, info, warn, error\n"; got.stderr != want || got.code != exitUsage {
		t.Errorf("got %v, want exit 2 and %q", got, want)
	}
	got = command(t.Context(), []string{"LEASED_CONFIG=leased.yaml"}, "serve", "--check")
	if got.code != 0 || got.stdout != "the configuration is valid\n" {
		t.Errorf("got %v, want a valid configuration", got)
	}
}
