package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"leased/test/proc"
)

// someRules are a few of each kind: of one gateway, of two, of one that dies, of
// a restart.
const someRules = "token-rises,renew-compares-all,wait-fifo,wait-killed-skipped,reopen-keeps-leases"

// TestContract_valkey holds a server to some rules, as a user who may write below
// one prefix only, and wants nothing left and no password shown.
func TestContract_valkey(t *testing.T) {
	t.Parallel()
	v := proc.StartValkey(t, "appendonly", "yes")
	const secret = "hush-hush"
	dir := t.TempDir()
	password, report := filepath.Join(dir, "pw"), filepath.Join(dir, "r.xml")
	if err := os.WriteFile(password, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v.Do(t, "ACL", "SETUSER", "leased", "on", ">"+secret, "~team*", "&*", "+@all")
	v.Do(t, "SET", "foreign", "1")
	url := "valkey://" + v.Addr + "?username=leased&prefix=team"
	got := command(t.Context(), nil, "contract", "--backend", url, "--password-file", password, "--rules", someRules)
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("got %v, want exit 0", got)
	}
	if !strings.Contains(got.stdout, "A restart of the server was not part of it.") || !strings.Contains(got.stdout, "reopen-keeps-leases") {
		t.Errorf("the report does not say that the server was not restarted:\n%s", got.stdout)
	}
	if left := v.Do(t, "KEYS", "*"); left != "foreign" {
		t.Errorf("left behind: %s; want only what was there before", left)
	}

	v.Do(t, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	refused := command(t.Context(), nil, "contract", "--backend", url, "--password-file", password, "--junit", report)
	if refused.code != exitUnavailable || !strings.Contains(refused.stderr, "volatile-lru") || !strings.Contains(refused.stderr, "noeviction") {
		t.Errorf("got %v, want exit 5, the policy and the one that it must be", refused)
	}
	text, err := os.ReadFile(report)
	if err != nil || !strings.Contains(string(text), "volatile-lru") || strings.Contains(string(text), "failures=\"1") {
		t.Errorf("the XML does not say why nothing was run: %v, %.300s", err, text)
	}
	if shown := got.String() + refused.String() + string(text); strings.Contains(shown, secret) {
		t.Errorf("the password is shown")
	}

	if left := v.Do(t, "KEYS", "*"); left != "foreign" {
		t.Errorf("left behind by a run that did not begin: %s", left)
	}

	v.Kill()
	if got := command(t.Context(), nil, "contract", "--backend", url, "--password-file", password); got.code != exitUnavailable {
		t.Errorf("got %v without a server, want exit 5", got)
	}
}

func TestContract_etcd(t *testing.T) {
	t.Parallel()
	e := proc.StartEtcd(t, proc.EtcdOptions{})
	url := "etcd://" + strings.TrimPrefix(e.Endpoints()[0], "http://")
	got := command(t.Context(), nil, "contract", "--backend", url, "--rules", someRules)
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("got %v, want exit 0", got)
	}
	if strings.Contains(got.stdout, "could not be removed") {
		t.Errorf("something was left behind:\n%s", got.stdout)
	}
}

// TestContract_tls: a server that speaks TLS is reached, when its authority is
// trusted and only then.
func TestContract_tls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificate(t, dir)
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	port := strconv.Itoa(proc.FreePort(t))
	proc.StartValkey(t, "tls-port", port, "tls-cert-file", cert, "tls-key-file", key, "tls-ca-cert-file", cert, "tls-auth-clients", "no")
	url := "valkey://127.0.0.1:" + port
	if got := command(t.Context(), nil, "contract", "--backend", url+"?tls.ca="+cert, "--rules", "token-rises"); got.code != 0 {
		t.Errorf("with its authority: %v, want exit 0", got)
	}
	if got := command(t.Context(), nil, "contract", "--backend", url+"?tls.enabled=true", "--rules", "token-rises"); got.code != exitUnavailable {
		t.Errorf("with the machine's authorities: %v, want exit 5", got)
	}
}
