package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// holder acquires and renews at a gateway.
type holder struct {
	t *testing.T
	c *client.Client
}

// holderAt returns a client of the gateway's only namespace, which it has waited
// for.
func holderAt(t *testing.T, g *gatewayUnderTest) *holder {
	t.Helper()
	g.served("default")
	c, err := client.New(client.Options{Servers: []string{g.url}, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &holder{t, c}
}

func (h *holder) acquire(name string) (api.Lease, error) {
	h.t.Helper()
	got, err := h.c.Acquire(h.t.Context(), client.AcquireRequest{
		Key:      api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: name}, Actor: "a"},
		Instance: "w", TTL: 10 * time.Minute,
	})
	if err != nil {
		return api.Lease{}, err
	}
	return *got.Lease, nil
}

func (h *holder) grant(name string) api.Lease {
	h.t.Helper()
	l, err := h.acquire(name)
	if err != nil {
		h.t.Fatalf("acquire %s: %v", name, err)
	}
	return l
}

func (h *holder) renew(l api.Lease) error {
	h.t.Helper()
	_, err := h.c.Renew(h.t.Context(), client.RenewRequest{LeaseID: l.LeaseID, Token: l.Token, Instance: "w"})
	return err
}

// passesOn wants the holder of a lease to be it still, and whoever has the key
// next to have a higher token, with which the old holder is refused.
func (h *holder) passesOn(name string, held api.Lease) {
	h.t.Helper()
	proc.Succeeds(h.t, "the holder renews after the fail-over", proc.Patience, func() error { return h.renew(held) })
	if _, err := h.c.Release(h.t.Context(), client.ReleaseRequest{LeaseID: held.LeaseID, Token: held.Token, Instance: "w"}); err != nil {
		h.t.Fatalf("release: %v", err)
	}
	next := h.grant(name)
	if next.Token <= held.Token {
		h.t.Errorf("token %d after token %d", next.Token, held.Token)
	}
	if err := h.renew(held); !errors.Is(err, client.ErrReleased) {
		h.t.Errorf("the old holder renews: %v, want %v", err, client.ErrReleased)
	}
	if err := h.renew(next); err != nil {
		h.t.Errorf("the new holder renews: %v", err)
	}
}

// TestFailOver_sentinel has a sentinel promote a replica under a gateway: what the
// replica had goes on, and what it had not is refused with a higher token for the
// next holder.
func TestFailOver_sentinel(t *testing.T) {
	primary := proc.StartValkey(t)
	between := proc.StartProxy(t, primary.Addr)
	host, port, _ := strings.Cut(between.Address, ":")
	replica := proc.StartValkey(t, "replicaof", host+" "+port)
	replica.Eventually(t, "the replica follows", func(s string) bool { return strings.Contains(s, "master_link_status:up") }, "INFO", "replication")
	sentinel := proc.StartPatientSentinel(t, "leases", primary)
	sentinel.Eventually(t, "the sentinel knows the replica", func(s string) bool { return s != "" }, "SENTINEL", "REPLICAS", "leases")
	leased := proc.StartLeasedOn(t, proc.Build(t, "leased/cmd/leased"), t.TempDir(), fmt.Sprintf(`
backends: {cache: {type: valkey, addresses: ["%s"], sentinel_master: leases}}
`, sentinel.Addr))
	h := holderAt(t, &gatewayUnderTest{t: t, url: leased.URL, hidden: []string{primary.Addr, replica.Addr, sentinel.Addr}})
	held := h.grant("held")
	replica.CatchUp(t, primary)
	between.Set(t, proc.Refuse) // what comes now the replica misses
	lost := h.grant("lost")
	primary.Kill()
	sentinel.Hurry(t, "leases")
	replica.Eventually(t, "the replica is promoted", func(s string) bool { return strings.HasPrefix(s, "master") }, "ROLE")
	h.passesOn("held", held)
	if err := h.renew(lost); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("the holder of a lease that the replica never had renews: %v, want %v", err, client.ErrNotFound)
	}
	if next := h.grant("lost"); next.Token <= lost.Token {
		t.Errorf("token %d after token %d, which the replica never had", next.Token, lost.Token)
	}
}

// TestFailOver_cluster has a cluster promote the replica of the primary that has
// the namespace.
func TestFailOver_cluster(t *testing.T) {
	primaries, replicas := proc.StartReplicatedCluster(t, 3)
	var addresses, hidden []string
	for _, v := range append(primaries, replicas...) {
		hidden = append(hidden, v.Addr)
		addresses = append(addresses, `"`+v.Addr+`"`)
	}
	leased := proc.StartLeasedOn(t, proc.Build(t, "leased/cmd/leased"), t.TempDir(), fmt.Sprintf(`
backends: {cache: {type: valkey, addresses: [%s]}}
`, strings.Join(addresses, ", ")))
	h := holderAt(t, &gatewayUnderTest{t: t, url: leased.URL, hidden: hidden})
	held := h.grant("held")
	owner := slices.IndexFunc(primaries, func(v *proc.Valkey) bool { return v.Do(t, "KEYS", "leased:{*") != "" })
	if owner < 0 {
		t.Fatal("no node has the namespace")
	}
	replicas[owner].CatchUp(t, primaries[owner])
	primaries[owner].Kill()
	replicas[owner].Eventually(t, "the replica is promoted", func(s string) bool { return strings.HasPrefix(s, "master") }, "ROLE")
	h.passesOn("held", held)
}
