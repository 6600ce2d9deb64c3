package client

import (
	"context"
	"net/http"
	"time"
)

// SetNow makes a client read another clock.
func SetNow(c *Client, now func() time.Time) { c.now = now }

// Elapsed is elapsed.
func Elapsed(from, to time.Time) time.Duration { return elapsed(from, to) }

// TransportOf returns the transport that a client made for itself.
func TransportOf(c *Client) *http.Transport { return c.http.Transport.(*http.Transport) }

// TransportFrom returns the transport that a client makes for itself, where this is
// the program's default one.
func TransportFrom(base http.RoundTripper) *http.Transport {
	return newHTTPClient(base).Transport.(*http.Transport)
}

// LostEvents tells the group of a session that events were lost.
func LostEvents(ctx context.Context, s *Session) { s.group.lost(ctx) }
