package gateway

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/go-json-experiment/json"

	"leased/gateway/api"
)

// TestRenewBulk_bytes holds what is appended by hand to the type, byte for byte: one
// lease that is renewed, the same one replayed, and one that is not.
func TestRenewBulk_bytes(t *testing.T) {
	r := newRig(t)
	l := r.acquired(t, "r-1")
	body := fmt.Sprintf(`{"instance":"worker-7","leases":[{"lease_id":%q,"token":%d},{"lease_id":%q,"token":%d}]}`,
		l.LeaseID, l.Token, "A"+l.LeaseID[1:], l.Token)
	for _, replayed := range []bool{false, true} {
		a := r.post(t, "/renew", body, api.HeaderIdempotencyKey, "r-2")
		reply := read[api.RenewBulkReply](t, a, http.StatusOK)
		want, err := json.Marshal(&reply, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		if a.body != string(want) {
			t.Errorf("got  %s\nwant %s", a.body, want)
		}
		if len(reply.Results) != 2 || reply.Results[0].Lease == nil || reply.Results[0].Replayed != replayed || reply.Results[1].Error == nil {
			t.Errorf("replayed %v: got %s", replayed, a.body)
		}
	}
}
