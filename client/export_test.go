package client

import "time"

// SetNow makes a client read another clock.
func SetNow(c *Client, now func() time.Time) { c.now = now }

// Elapsed is elapsed.
func Elapsed(from, to time.Time) time.Duration { return elapsed(from, to) }
