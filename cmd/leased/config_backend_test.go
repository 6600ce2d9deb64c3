package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadPassword(t *testing.T) {
	tests := []struct{ name, text, want, fails string }{
		{"plain", "secret", "secret", ""},
		{"as an editor leaves it", "secret\n", "secret", ""},
		{"with a carriage return", "secret\r\n", "secret", ""},
		{"white space is part of it", " se cret \n", " se cret ", ""},
		{"two lines are part of it", "a\nb\n", "a\nb", ""},
		{"empty", "\n", "", "is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readPassword(file)
			if got != tt.want || (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("got %q, %v, want %q and an error with %q", got, err, tt.want, tt.fails)
			}
		})
	}
	if got, err := readPassword(""); got != "" || err != nil {
		t.Errorf("no file: got %q, %v, want none", got, err)
	}
}

func TestBackendTLS(t *testing.T) {
	dir := t.TempDir()
	nonsense := filepath.Join(dir, "nonsense.pem")
	if err := os.WriteFile(nonsense, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		tls   backendTLSConfig
		on    bool
		fails string
	}{
		{"nothing", backendTLSConfig{}, false, ""},
		{"the machine's roots", backendTLSConfig{Enabled: true, ServerName: "cache.internal"}, true, ""},
		{"no file", backendTLSConfig{CA: filepath.Join(dir, "none.pem")}, true, "tls.ca: "},
		{"no certificate", backendTLSConfig{CA: nonsense}, true, "holds no certificate in PEM"},
		{"no key", backendTLSConfig{Cert: nonsense, Key: nonsense}, true, "tls.cert: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.tls.load()
			switch {
			case tt.fails != "":
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("got %v, want an error with %q", err, tt.fails)
				}
			case err != nil:
				t.Error(err)
			case (got != nil) != tt.on:
				t.Errorf("TLS is %v, want %v", got != nil, tt.on)
			case got != nil && got.ServerName != tt.tls.ServerName:
				t.Errorf("server name %q, want %q", got.ServerName, tt.tls.ServerName)
			}
		})
	}
}

// TestBackendConfig holds what of the configuration reaches the stores.
func TestBackendConfig(t *testing.T) {
	dir := t.TempDir()
	password := filepath.Join(dir, "pw")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := backendConfig{
		Addresses: []string{"a:1"}, Username: "me", PasswordFile: password, Prefix: "team", SentinelMaster: "main",
		SentinelUsername: "sam", SentinelPasswordFile: password, ReplicaAcks: 2, TLS: backendTLSConfig{Enabled: true},
	}.valkey()
	if err != nil || v.Password != "secret" || v.SentinelPassword != "secret" || v.Prefix != "team:" || v.SentinelMaster != "main" ||
		v.SentinelUsername != "sam" || v.ReplicaAcks != 2 || v.TLS == nil || v.Username != "me" || v.Addresses[0] != "a:1" {
		t.Errorf("valkey: got %+v, %v", v, err)
	}
	for enabled, want := range map[bool]string{true: "https://a:1", false: "http://a:1"} {
		e, err := backendConfig{
			Endpoints: []string{"a:1"}, Username: "me", PasswordFile: password, Prefix: "team", TLS: backendTLSConfig{Enabled: enabled},
		}.etcd()
		if err != nil || e.Endpoints[0] != want || e.Password != "secret" || e.Prefix != "team" || (e.TLS != nil) != enabled {
			t.Errorf("etcd: got %+v, %v, want the endpoint %s", e, err, want)
		}
	}
}
