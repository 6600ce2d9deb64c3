package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"leased/client"
	"leased/contract"
	"leased/gateway/api"
)

// openTestApp opens a node in a directory of its own on a free port.
func openTestApp(t *testing.T, stderr io.Writer, flags ...override) *app {
	t.Helper()
	flags = append([]override{
		{[]string{"node", "data_dir"}, t.TempDir(), "--node.data-dir"},
		{[]string{"http", "listen"}, "127.0.0.1:0", "--http.listen"},
	}, flags...)
	s, err := loadConfig("", nil, flags)
	if err != nil {
		t.Fatal(err)
	}
	a, err := openApp(t.Context(), &env{stderr: stderr, version: "test"}, s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func testClient(t *testing.T, address string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Servers: []string{"http://" + address}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func acquireTest(t *testing.T, c *client.Client, ttl time.Duration) *api.Lease {
	t.Helper()
	got, err := c.Acquire(t.Context(), client.AcquireRequest{
		Key:      api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: "x"}, Actor: "a"},
		Instance: "w-1", TTL: ttl,
	})
	if err != nil {
		t.Fatal(err)
	}
	return got.Lease
}

// lumberjackLeak excuses a goroutine that the library behind the audit file
// starts and has no way to end.
func lumberjackLeak() goleak.Option {
	return goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun")
}

// TestApp_two: two whole servers run in one process and share nothing, and
// nothing of them runs on after they are closed.
func TestApp_two(t *testing.T) {
	defer goleak.VerifyNone(t, lumberjackLeak())
	var log bytes.Buffer
	one, two := openTestApp(t, io.Discard), openTestApp(t, &log, override{[]string{"log", "format"}, "json", "--log.format"})
	for _, a := range []*app{one, two} {
		c := testClient(t, a.address)
		acquireTest(t, c, 30*time.Second)
		ready, err := c.Ready(t.Context())
		if err != nil || !ready.Ready {
			t.Errorf("the server is not ready: %+v, %v", ready, err)
		}
		c.Close() // before goleak looks
	}
	for _, a := range []*app{one, two} {
		if err := a.close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := a.wait(t.Context()); err != nil {
			t.Errorf("a server that was closed in order ended with %v", err)
		}
	}
	for line := range strings.Lines(log.String()) {
		if json.Unmarshal([]byte(line), new(map[string]any)) != nil {
			t.Errorf("log.format is json, and a line is %q", line)
		}
	}
}

// TestApp_audit: what happens, also what nobody called for, is in the audit
// file once the node is closed.
func TestApp_audit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	a := openTestApp(t, io.Discard,
		override{[]string{"audit", "file"}, file, "--audit.file"},
		override{[]string{"namespaces", "default", "ttl", "min"}, "10ms", "--namespaces.default.ttl.min"})
	c := testClient(t, a.address)
	lease := acquireTest(t, c, 10*time.Millisecond)
	for deadline := time.Now().Add(patience); lease.State == "active"; {
		var err error
		if lease, err = c.Get(t.Context(), "", lease.LeaseID); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the lease does not expire")
		}
	}
	// An expired lease may be seen before the sweep has recorded it; the next
	// grant records it first.
	acquireTest(t, c, 30*time.Second)
	if err := a.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Operation string `json:"operation"`
			Outcome   string `json:"outcome"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		outcomes[e.Operation+" "+e.Outcome]++
	}
	want := map[string]int{"acquire acquired": 2, "expire expired": 1}
	if diff := cmp.Diff(want, outcomes); diff != "" {
		t.Errorf("audit events (-want +got):\n%s", diff)
	}
}

func TestApp_openFails(t *testing.T) {
	defer goleak.VerifyNone(t, lumberjackLeak())
	tests := []struct {
		name, want string
		breaks     func(*settings)
	}{
		{"audit file", "audit.file: ", func(s *settings) { s.Audit.File = "/none/a" }},
		{"certificate", "http.tls: open none.pem", func(s *settings) { s.HTTP.TLS = httpTLSConfig{Cert: "none.pem", Key: "none.pem"} }},
		{"address", "http.listen: ", func(s *settings) { s.HTTP.Listen = "127.0.0.1:http-nonsense" }},
		{"backend", `backends.local: no backend has the type "redis"`, func(s *settings) { s.Backends["local"] = backendConfig{Type: "redis"} }},
		{"password of a backend", `backends.local: password_file: open none: no such file`, func(s *settings) {
			s.Backends["local"] = backendConfig{Type: "valkey", Addresses: []string{"127.0.0.1:1"}, PasswordFile: "none"}
		}},
		{"authority of a backend", `backends.local: tls.ca: open none: no such file`, func(s *settings) {
			s.Backends["local"] = backendConfig{Type: "etcd", Endpoints: []string{"127.0.0.1:1"}, TLS: backendTLSConfig{CA: "none"}}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := loadConfig("", nil, []override{
				{[]string{"node", "data_dir"}, t.TempDir(), "--node.data-dir"}, {[]string{"http", "listen"}, "127.0.0.1:0", "--http.listen"},
			})
			if err != nil {
				t.Fatal(err)
			}
			tt.breaks(s)
			if _, err := openApp(t.Context(), &env{stderr: io.Discard}, s); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v, want an error that begins %q", err, tt.want)
			}
		})
	}
}

// TestApp_serverEnds: a server that ends by itself ends the process, with the
// reason; it must not go on without being reached.
func TestApp_serverEnds(t *testing.T) {
	a := &app{ended: make(chan struct{}), serveErr: errors.New("accept: too many open files")}
	close(a.ended)
	if err := a.wait(t.Context()); !errors.Is(err, a.serveErr) {
		t.Errorf("got %v, want %v", err, a.serveErr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&app{ended: make(chan struct{})}).wait(ctx); err != nil {
		t.Errorf("got %v after a signal, want nil", err)
	}
}

func TestLateObserver(t *testing.T) {
	var (
		o   lateObserver
		got []string
	)
	o.observe(contract.Event{ID: "1"})
	o.observe(contract.Event{ID: "2"})
	o.attach(func(e contract.Event) { got = append(got, e.ID) })
	o.observe(contract.Event{ID: "3"})
	if diff := cmp.Diff([]string{"1", "2", "3"}, got); diff != "" {
		t.Errorf("expiries heard (-want +got):\n%s", diff)
	}
}

// TestServe_tls: with a certificate the API is HTTPS and nothing else, and the
// commands reach it.
func TestServe_tls(t *testing.T) {
	dir := t.TempDir()
	writeCertificate(t, dir)
	s := serveIn(t, dir, "--http.tls.cert", "cert.pem", "--http.tls.key", "key.pem")
	if !strings.HasPrefix(s.url, "https://") {
		t.Fatalf("the server says that it listens on %s", s.url)
	}
	trust := []string{"LEASED_SERVER=" + s.url, "SSL_CERT_FILE=" + filepath.Join(dir, "cert.pem")}
	if got := start(t, dir, trust, keyArgs("acquire")...).wait(); got.code != 0 {
		t.Errorf("acquire over TLS: %v, want exit 0", got)
	}
	if got := s.run(keyArgs("acquire")...); got.code != exitUnavailable || !strings.Contains(got.stderr, "certificate") {
		t.Errorf("acquire without trust in the certificate: %v, want exit 5 and why", got)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(s.url, "https", "http", 1)+"/v1/namespaces", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP on the TLS port answers %s", resp.Status)
		}
	}
}

// writeCertificate writes a certificate for 127.0.0.1 that is its own authority.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
