package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// TestBackends_recovered: a gateway that is started again says of each namespace what
// it found. While no process runs, the clock of raftkv stands still, and the others'
// does not.
func TestBackends_recovered(t *testing.T) {
	valkey, etcd := proc.StartValkey(t), proc.StartEtcd(t, proc.EtcdOptions{})
	bin, dir := proc.Build(t, "leased/cmd/leased"), t.TempDir()
	config := onThree(valkey.Addr, strings.TrimPrefix(etcd.Endpoints()[0], "http://"))
	leased := proc.StartLeasedOn(t, bin, dir, config)
	c, err := client.New(client.Options{Servers: []string{leased.URL}})
	if err != nil {
		t.Fatal(err)
	}
	const short = 5 * time.Second
	granted := func(namespace, name string, ttl time.Duration) {
		t.Helper()
		proc.Succeeds(t, "a lease is granted", proc.Patience, func() error {
			_, err := c.Acquire(t.Context(), client.AcquireRequest{
				Namespace: namespace, Instance: "i", RequestID: namespace + name, TTL: ttl,
				Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: name}, Actor: "test"},
			})
			return err
		})
	}
	for _, namespace := range []string{"on-raft", "on-valkey", "on-etcd"} {
		granted(namespace, "long", time.Hour)
	}
	granted("on-raft", "short", time.Hour) // while no process runs, raftkv's clock stands still
	granted("on-valkey", "short", short)
	granted("on-etcd", "short", short)
	over := time.After(short + 5*time.Second) // with etcd's slack
	leased.Kill()
	<-over
	proc.StartLeasedOn(t, bin, dir, config)
	for namespace, want := range map[string]string{
		"on-raft": "active=2 waiting=0 expired_meanwhile=0", "on-valkey": "active=1 waiting=0 expired_meanwhile=1", "on-etcd": "active=1 waiting=0 expired_meanwhile=1",
	} {
		line := fmt.Sprintf("msg=\"namespace recovered\" namespace=%s %s\n", namespace, want)
		proc.Succeeds(t, "the log has "+line, proc.Patience, func() error {
			log, err := os.ReadFile(filepath.Join(dir, "log"))
			if err == nil && !strings.Contains(string(log), line) {
				return fmt.Errorf("it has:\n%s", log)
			}
			return err
		})
	}
}
