package holding

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
	"leased/test/proc"
)

const (
	// roleVariable makes this test binary a holder, or the command of one.
	roleVariable = "TEST_HOLDING_ROLE"
	ttl          = 3 * time.Second
	// margin is the longest that there is: a machine that runs many tests lets a
	// process wait for longer than a sixth of the TTL.
	margin = ttl / 3
	pace   = 20 * time.Millisecond // of side effects
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		proc.AtOnce(10)
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

func play(role string) error {
	w, err := dial(os.Getenv("OBSERVER"), os.Getenv("NAME"))
	if err != nil {
		return err
	}
	if role == "command" {
		token, err := strconv.ParseUint(os.Getenv("LEASED_TOKEN"), 10, 64)
		if err != nil {
			return err
		}
		for { // it knows nothing of the lease: whoever started it ends it
			if err := w.step(token); err != nil {
				return err
			}
			time.Sleep(pace)
		}
	}
	c, err := client.New(client.Options{Servers: []string{os.Getenv("LEASED_SERVER")}})
	if err != nil {
		return err
	}
	for {
		// What ended one hold, also that it could not begin, is for the next to mend.
		_ = c.WithLease(context.Background(), client.HoldRequest{
			AcquireRequest: client.AcquireRequest{Key: key(), Instance: os.Getenv("NAME"), TTL: ttl, Wait: time.Minute}, Margin: margin,
		}, func(_ context.Context, s *client.Session) error {
			for s.Err() == nil {
				if err := w.step(s.Token()); err != nil {
					return err
				}
				select {
				case <-time.After(pace):
				case <-s.Context().Done():
				}
			}
			return nil
		})
		time.Sleep(pace)
	}
}

func key() api.Key {
	return api.Key{Tenant: "acme", Target: api.Target{Type: "name", ID: os.Getenv("KEY")}, Actor: "holder"}
}

// writer makes side effects on the guarded resource.
type writer struct {
	conn net.Conn
	in   *bufio.Reader
	name string
}

func dial(address, name string) (*writer, error) {
	conn, err := net.Dial("unix", address)
	if err != nil {
		return nil, err
	}
	return &writer{conn, bufio.NewReader(conn), name}, nil
}

// step makes one and waits for it; that it was refused is the observer's to know.
func (w *writer) step(token uint64) error {
	if _, err := fmt.Fprintf(w.conn, "%d %s\n", token, w.name); err != nil {
		return err
	}
	_, err := w.in.ReadString('\n')
	return err
}
