package fleet

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

// TestFleet: a hundred holders with two hundred leases each, a thousand each under
// LEASED_CHAOS, renew them for a minute, or for ten, on one raftkv node. Each takes
// one request an interval for all of its leases, and none is lost.
func TestFleet(t *testing.T) {
	const holders, life = 100, 30 * time.Second
	leases, lasts, long := 200, time.Minute, os.Getenv("LEASED_CHAOS") != ""
	if long {
		leases, lasts = 1000, 10*time.Minute
	}
	server := proc.StartLeasedOn(t, proc.Build(t, "leased/cmd/leased"), t.TempDir(), "")
	clients := make([]*client.Client, holders)
	sessions := make([][]*client.Session, holders)
	for i := range clients {
		c, err := client.New(client.Options{Servers: []string{server.URL}, Timeout: proc.Patience})
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = c
	}
	began := time.Now()
	each(holders, func(holder int) {
		for i := range leases {
			s, err := clients[holder].Hold(t.Context(), client.HoldRequest{AcquireRequest: client.AcquireRequest{
				Instance: fmt.Sprint("holder-", holder), TTL: life,
				Key: api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: fmt.Sprint(holder, " ", i)}, Actor: "fleet"},
			}})
			if err != nil {
				t.Errorf("holder %d, lease %d: %v", holder, i, err)
				return
			}
			sessions[holder] = append(sessions[holder], s)
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("%d leases were acquired in %v", holders*leases, time.Since(began).Round(time.Second))

	renewals := func() float64 {
		return proc.Metric(t, server.URL, `leased_http_requests_total{method="POST",route="/v1/namespaces/:namespace/renew",status="200"}`)
	}
	cpu := func() float64 { return proc.Metric(t, server.URL, "process_cpu_seconds_total") }
	// Leases that were acquired one after the other are renewed together from the
	// second renewal on.
	<-time.After(life / 3)
	asked, used, began := renewals(), cpu(), time.Now()
	<-time.After(lasts)
	asked, used = renewals()-asked, cpu()-used
	took := time.Since(began)
	t.Logf("for %v: %.0f renewals with %.2f of a processor", took.Round(time.Second), asked, used/took.Seconds())

	for holder := range sessions {
		for _, s := range sessions[holder] {
			if err := s.Err(); err != nil {
				t.Fatalf("holder %d lost a lease: %v", holder, err)
			}
		}
	}
	const active = `leased_active_leases{namespace="default"}`
	if n := proc.Metric(t, server.URL, active); n != float64(holders*leases) {
		t.Errorf("%.0f leases are active, want %d", n, holders*leases)
	}
	// A client renews after a third of the TTL, or up to a tenth of that sooner, for all
	// of its leases, so that clients that began together do not stay so.
	if limit := holders * (took.Seconds()/(0.9*(life/3).Seconds()) + 1); asked == 0 || asked > limit {
		t.Errorf("%.0f bulk renewals in %v, want at most %.0f: one a holder and interval", asked, took, limit)
	}
	if long && used > took.Seconds()/2 {
		t.Errorf("renewals took %.2f of a processor, want at most half", used/took.Seconds())
	}
	// The server is killed under the others: there is nothing more to see of them.
	const last = 10
	each(last, func(holder int) {
		if err := clients[holder].Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
	// A scrape may show what the sessions' streams looked up a moment ago, while the
	// holders were leaving.
	proc.Succeeds(t, "the leases of those who have gone are active no more", proc.Patience, func() error {
		if n := proc.Metric(t, server.URL, active); n != float64((holders-last)*leases) {
			return fmt.Errorf("%.0f leases are active after %d holders have gone, want %d", n, last, (holders-last)*leases)
		}
		return nil
	})
}

// each calls f for each of n at once, and returns when all calls have.
func each(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}
