package client_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"leased/client"
	"leased/gateway/api"
)

// FuzzClient_answer gives the client any answer: it may be from a proxy, cut, or
// from something that is no gateway at all. A call must end with a lease or with
// an error that has a code, and never with a grant that nobody gave.
func FuzzClient_answer(f *testing.F) {
	f.Add(201, api.MediaType, granted().body)
	f.Add(201, api.MediaType, `{"outcome":"acquired"}`)
	f.Add(200, api.MediaType, `null`)
	f.Add(409, api.ProblemMediaType, problem(api.CodeConflict).body)
	f.Add(409, api.ProblemMediaType, `{"code":"","status":409}`)
	f.Add(503, "text/html", "<html>")
	f.Add(504, api.ProblemMediaType+"; charset=utf-8", problem(api.CodeOutcomeUnknown).body)
	f.Add(307, "", "")
	f.Fuzz(func(t *testing.T, status int, mediaType, body string) {
		if status < 200 || status > 599 {
			return // net/http hands on no other
		}
		if mediaType == "" {
			mediaType = "x/y"
		}
		n := newNetwork(step{status: status, mediaType: mediaType, body: body})
		c := n.client(t, func(o *client.Options) { o.Timeout = 20 * time.Millisecond })
		got, err := acquire(context.Background(), c)
		switch {
		case err == nil && (status/100 != 2 || got.Lease == nil || got.Lease.LeaseID == "" || got.Lease.Token == 0):
			t.Errorf("status %d, %q: granted %+v", status, body, got.Lease)
		case err != nil && client.CodeOf(err) == "":
			t.Errorf("status %d, %q: %v has no code", status, body, err)
		case err != nil && status >= http.StatusInternalServerError && mediaType != api.ProblemMediaType && errors.Is(err, client.ErrUnavailable):
			t.Errorf("status %d, %q: a foreign server error is not known to be unapplied", status, mediaType)
		}
	})
}
