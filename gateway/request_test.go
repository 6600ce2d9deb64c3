package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leased/contract"
	"leased/gateway/api"
)

func TestRequestID(t *testing.T) {
	r := newRig(t)
	tests := map[string]struct {
		headers []string
		want    string // "" wants one that the gateway made
		code    api.Code
	}{
		"given":        {[]string{"r-1"}, "r-1", ""},
		"longest":      {[]string{strings.Repeat("x", 128)}, strings.Repeat("x", 128), ""},
		"punctuation":  {[]string{"!~[]{}\"\\"}, "!~[]{}\"\\", ""},
		"absent":       {nil, "", ""},
		"empty":        {[]string{""}, "", api.CodeInvalid},
		"too long":     {[]string{strings.Repeat("x", 129)}, "", api.CodeInvalid},
		"space":        {[]string{"a b"}, "", api.CodeInvalid},
		"control":      {[]string{"a\x01"}, "", api.CodeInvalid},
		"not ASCII":    {[]string{"é"}, "", api.CodeInvalid},
		"given twice":  {[]string{"r-1", "r-1"}, "", api.CodeInvalid},
		"two of them":  {[]string{"r-1", "r-2"}, "", api.CodeInvalid},
		"list of them": {[]string{"r-1, r-2"}, "", api.CodeInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var headers []string
			for _, h := range test.headers {
				headers = append(headers, api.HeaderIdempotencyKey, h)
			}
			a := r.post(t, "/leases/"+someLease+"/release", `{"token":7,"instance":"w"}`, headers...)
			if test.code == "" {
				test.code = api.CodeNotFound
			}
			p := wantProblem(t, a, test.code)
			if test.code == api.CodeInvalid && p.Field != api.HeaderIdempotencyKey {
				t.Errorf("got field %q, want %q", p.Field, api.HeaderIdempotencyKey)
			}
			got := a.header.Values(api.HeaderRequestID)
			if len(got) != 1 || (test.want != "" && got[0] != test.want) || got[0] == "" {
				t.Errorf("got X-Request-Id %q, want one: %q", got, test.want)
			}
		})
	}
}

// TestRequestID_everywhere: whatever is answered has a request id, and reads do
// not take the one that a mutation goes by.
func TestRequestID_everywhere(t *testing.T) {
	r := newRig(t)
	r.store.renew = func(context.Context, *contract.RenewRequest) (contract.Result, error) { panic("a defect") }
	renew := "/v1/namespaces/default/leases/" + someLease + "/renew"
	seen := map[string]bool{}
	for _, request := range [][3]string{
		{"GET", "/nowhere"}, {"GET", "/"}, {"DELETE", "/v1/namespaces/default/leases"}, {"PURGE", "/healthz"},
		{"GET", "/healthz"}, {"GET", "/readyz"}, {"GET", "/metrics"}, {"GET", "/openapi.json"}, {"GET", "/v1/namespaces"},
		{"GET", "/v1/namespaces/default/leases"}, {"GET", "/v1/namespaces/nope/leases"}, {"GET", "/healthz?token=x"},
		{"POST", renew, strings.Repeat("x", maxBody+1)}, {"POST", renew, `{"token":7,"instance":"w"}`},
	} {
		a := r.call(t, request[0], request[1], request[2])
		id := a.header.Get(api.HeaderRequestID)
		if id == "" || seen[id] {
			t.Errorf("%s %s: got X-Request-Id %q, want a new one", request[0], request[1], id)
		}
		seen[id] = true
	}
	if a := r.get(t, "/leases", api.HeaderIdempotencyKey, "r-1"); a.header.Get(api.HeaderRequestID) == "r-1" {
		t.Error("a read took the Idempotency-Key for its own")
	}
}

func TestPanic(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	r.store.renew = func(context.Context, *contract.RenewRequest) (contract.Result, error) { panic("the secret cause") }
	a := r.post(t, "/leases/"+someLease+"/renew", `{"token":7,"instance":"w"}`)
	wantProblem(t, a, api.CodeInternal)
	if strings.Contains(a.body, "secret") || strings.Contains(a.body, ".go") {
		t.Errorf("the reply shows the panic: %s", a.body)
	}
	if !strings.Contains(log.String(), "the secret cause") || !strings.Contains(log.String(), "request_test.go") {
		t.Errorf("the log has no panic with its stack: %s", log.String())
	}
	wantProblem(t, r.post(t, "/leases/"+someLease+"/release", `{"token":7,"instance":"w"}`), api.CodeNotFound)
}

func TestRoutes_unknown(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/", "/nowhere", "/v1", "/v1/namespaces/", "/v1/namespaces/default/", "/V1/namespaces", "/v1/namespaces/default/leases/", "//healthz", "/healthz/"} {
		wantProblem(t, r.call(t, http.MethodGet, path, ""), api.CodeNotFound)
	}
	tests := map[[2]string]string{
		{"PUT", "/v1/namespaces/default/leases"}:                         "POST, GET",
		{"GET", "/v1/namespaces/default/leases/" + someLease + "/renew"}: "POST",
		{"POST", "/healthz"}:         "GET",
		{"HEAD", "/v1/namespaces"}:   "GET",
		{"PURGE", "/v1/namespaces"}:  "GET",
		{"OPTIONS", "/openapi.json"}: "GET",
	}
	for request, allow := range tests {
		a := r.call(t, request[0], request[1], "")
		wantProblem(t, a, api.CodeMethodNotAllowed)
		if got := a.header.Get("Allow"); got != allow {
			t.Errorf("%v: got Allow %q, want %q", request, got, allow)
		}
	}
	wantProblem(t, r.call(t, http.MethodPost, "/v1/namespaces/nope/leases", `{`), api.CodeUnknownNamespace)
	wantProblem(t, r.call(t, http.MethodGet, "/v1/namespaces/nope/leases", ""), api.CodeUnknownNamespace)
}

// TestRoutes_escaped: a name in a path means what it is unescaped once.
func TestRoutes_escaped(t *testing.T) {
	r := newRig(t, func(o *Options) {
		for _, name := range []string{"a/b", "a+b", "a%2Fb", "ä b"} {
			ns := o.Namespaces[0]
			ns.Name = name
			o.Namespaces = append(o.Namespaces, ns)
		}
	})
	for path, want := range map[string]string{
		"a%2Fb": "a/b", "a+b": "a+b", "a%2Bb": "a+b", "a%252Fb": "a%2Fb", "%C3%A4%20b": "ä b", "%61+b": "a+b",
	} {
		got := read[api.Namespace](t, r.call(t, http.MethodGet, "/v1/namespaces/"+path, ""), http.StatusOK).Namespace
		if got != want {
			t.Errorf("%s: got namespace %q, want %q", path, got, want)
		}
	}
}

func TestMediaType(t *testing.T) {
	r := newRig(t)
	tests := map[string]bool{
		"application/json":                       true,
		"application/json; charset=utf-8":        true,
		"application/json;charset=\"UTF-8\"":     true,
		"Application/JSON":                       true,
		"":                                       false,
		"text/plain":                             false,
		"application/x-www-form-urlencoded":      false,
		"application/json; charset=iso-8859-1":   false,
		"application/json, text/plain":           false,
		"application/merge-patch+json":           false,
		"application/json; charset=utf-8; a=b=c": false,
	}
	for given, ok := range tests {
		a := r.rawPost(t, "/v1/namespaces/default/resolve", `{`+someKey+`}`, http.Header{"Content-Type": {given}})
		switch {
		case ok && a.status != http.StatusOK:
			t.Errorf("%q: got status %d: %s", given, a.status, a.body)
		case !ok:
			wantProblem(t, a, api.CodeUnsupportedMediaType)
		}
	}
	a := r.rawPost(t, "/v1/namespaces/default/resolve", "x", http.Header{"Content-Type": {api.MediaType}, "Content-Encoding": {"gzip"}})
	wantProblem(t, a, api.CodeUnsupportedMediaType)
}

func TestBody_limits(t *testing.T) {
	r := newRig(t)
	pad := func(body string, size int) string { return body + strings.Repeat(" ", size-len(body)) }
	resolve := `{` + someKey + `}`
	if a := r.post(t, "/resolve", pad(resolve, maxBody)); a.status != http.StatusOK {
		t.Errorf("64 KiB: got status %d: %s", a.status, a.body)
	}
	wantProblem(t, r.post(t, "/resolve", pad(resolve, maxBody+1)), api.CodeTooLarge)
	bulk := `{"instance":"w-1","leases":[{"lease_id":"` + someLease + `","token":7}]}`
	if a := r.post(t, "/renew", pad(bulk, maxBulkBody)); a.status != http.StatusOK {
		t.Errorf("bulk of 1 MiB: got status %d: %s", a.status, a.body)
	}
	wantProblem(t, r.post(t, "/renew", pad(bulk, maxBulkBody+1)), api.CodeTooLarge)

	var leases []string
	for i := range contract.MaxBulk {
		id := contract.NewLeaseID(contract.KeyID{1}, [16]byte{byte(i >> 8), byte(i), 1})
		leases = append(leases, fmt.Sprintf(`{"lease_id":%q,"token":%d}`, id, i+1))
	}
	a := r.post(t, "/renew", `{"instance":"w-1","leases":[`+strings.Join(leases, ",")+`]}`)
	if got := len(read[api.RenewBulkReply](t, a, http.StatusOK).Results); got != contract.MaxBulk {
		t.Errorf("got %d results, want %d", got, contract.MaxBulk)
	}
}

func TestQuery(t *testing.T) {
	r := newRig(t)
	lease := "/leases/" + someLease
	tests := map[string]struct{ path, field string }{
		"unknown":                   {"/leases?foo=1", "foo"},
		"unknown, not UTF-8":        {"/leases?%d5=1", "\ufffd"},
		"unknown, long":             {"/leases?" + strings.Repeat("é", 200) + "=1", strings.Repeat("é", 128) + "…"},
		"no name":                   {"/leases?=1", "query"},
		"unknown on a lease":        {lease + "?owner=a", "owner"},
		"other case":                {"/leases?Owner=a", "Owner"},
		"twice":                     {"/leases?owner=a&owner=b", "owner"},
		"empty":                     {"/leases?owner=", "owner"},
		"malformed":                 {"/leases?owner=%zz", "query"},
		"semicolon":                 {"/leases?owner=a;limit=1", "query"},
		"credential":                {"/leases?access_token=x", "access_token"},
		"credential in other words": {"/leases?X-Api-Key=x", "X-Api-Key"},
		"token":                     {lease + "?token=7", "token"},
		"timeout zero":              {"/leases?timeout=0s", "timeout"},
		"timeout negative":          {"/leases?timeout=-1s", "timeout"},
		"timeout without unit":      {"/leases?timeout=5", "timeout"},
		"timeout no duration":       {"/leases?timeout=soon", "timeout"},
		"timeout huge":              {"/leases?timeout=99999999999h", "timeout"},
		"limit zero":                {"/leases?limit=0", "limit"},
		"limit negative":            {"/leases?limit=-1", "limit"},
		"limit too high":            {"/leases?limit=1001", "limit"},
		"limit fraction":            {"/leases?limit=1.5", "limit"},
		"limit signed":              {"/leases?limit=%2B5", "limit"},
		"limit padded":              {"/leases?limit=05", "limit"},
		"time with a comma":         {"/leases?expires_before=2026-01-01T00:00:00,5Z", "expires_before"},
		"limit of a history":        {"/keys/JAAAAAAAAAAAAAAAAAAAAA/history?limit=x", "limit"},
		"target alone":              {"/leases?target=example.com", "target_type"},
		"target type alone":         {"/leases?target_type=domain", "target"},
		"target type unknown":       {"/leases?target_type=host&target=a", "target_type"},
		"target bad":                {"/leases?target_type=ip&target=1.2.3", "target"},
		"state unknown":             {"/leases?state=dead", "state"},
		"state free":                {"/leases?state=free", "state"},
		"time":                      {"/leases?expires_before=tomorrow", "expires_before"},
		"time, + not escaped":       {"/leases?expires_before=2026-01-01T00:00:00+01:00", "expires_before"},
		"cursor":                    {"/leases?cursor=nonsense", "cursor"},
		"cursor of a history":       {"/keys/JAAAAAAAAAAAAAAAAAAAAA/history?cursor=nonsense", "cursor"},
		"owner control":             {"/leases?owner=a%00", "owner"},
		"lease id":                  {"/leases/short", "lease_id"},
		"lease id with bits":        {"/leases/" + someLease[:42] + "F", "lease_id"},
		"lease id zero":             {"/leases/" + strings.Repeat("A", 43), "lease_id"},
		"key id":                    {"/keys/short", "key_id"},
		"key id zero":               {"/keys/" + strings.Repeat("A", 22), "key_id"},
		"key id of a history":       {"/keys/short/history", "key_id"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if p := wantProblem(t, r.get(t, test.path), api.CodeInvalid); p.Field != test.field {
				t.Errorf("got field %q, want %q (%s)", p.Field, test.field, p.Detail)
			}
		})
	}
	for verb, body := range map[string]string{
		"renew": `{"token":7,"instance":"w"}`, "release": `{"token":7,"instance":"w"}`, "revoke": `{"reason":"x"}`,
	} {
		if p := wantProblem(t, r.post(t, "/leases/short/"+verb, body), api.CodeInvalid); p.Field != "lease_id" {
			t.Errorf("%s: got field %q, want lease_id", verb, p.Field)
		}
	}
	for _, path := range []string{"/healthz?password=x", "/nowhere?api_key=x", "/metrics?Authorization=x"} {
		a := r.call(t, http.MethodGet, path, "")
		if p := wantProblem(t, a, api.CodeInvalid); strings.Contains(a.body, "=x") || p.Field == "" {
			t.Errorf("%s: got %s", path, a.body)
		}
	}
}

func TestList_filters(t *testing.T) {
	r := newRig(t)
	mine := r.acquired(t, "r-1")
	read[api.LeaseReply](t, r.post(t, "/leases", otherTenant), http.StatusCreated)
	for query, want := range map[string]int{
		"":                           2,
		"?owner=anonymous":           2,
		"?owner=*":                   0,
		"?tenant=acme":               1,
		"?tenant=acme&actor=scanner": 0,
		"?target_type=domain&target=EXAMPLE.com.":     1,
		"?target_type=ip&target=192.0.2.1":            1,
		"?instance=worker-7":                          1,
		"?job_id=job-17":                              1,
		"?program=recon":                              1,
		"?state=released":                             0,
		"?state=active":                               2,
		"?expires_before=2026-01-01T00:00:31Z":        2,
		"?expires_before=2026-01-01T00:00:10.5Z":      0,
		"?expires_before=2026-01-01T01:00:31%2B01:00": 2,
		"?limit=1000&timeout=1s":                      2,
	} {
		if got := len(read[api.ListReply](t, r.get(t, "/leases"+query), http.StatusOK).Leases); got != want {
			t.Errorf("%q: got %d leases, want %d", query, got, want)
		}
	}
	first := read[api.ListReply](t, r.get(t, "/leases?limit=1"), http.StatusOK)
	second := read[api.ListReply](t, r.get(t, "/leases?limit=1&cursor="+first.NextCursor), http.StatusOK)
	if first.NextCursor == "" || second.NextCursor != "" || first.Leases[0].LeaseID == second.Leases[0].LeaseID {
		t.Errorf("got pages %v (cursor %q) and %v (cursor %q) of %s", first.Leases, first.NextCursor, second.Leases, second.NextCursor, mine.LeaseID)
	}
}

// TestTraceParent: the header fills trace_id where the body has none.
func TestTraceParent(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for name, test := range map[string]struct{ header, body, want string }{
		"valid":          {"00-" + id + "-00f067aa0ba902b7-01", "", id},
		"body wins":      {"00-" + id + "-00f067aa0ba902b7-01", "mine", "mine"},
		"later version":  {"cc-" + id + "-00f067aa0ba902b7-01-what", "", id},
		"version ff":     {"ff-" + id + "-00f067aa0ba902b7-01", "", ""},
		"longer than 00": {"00-" + id + "-00f067aa0ba902b7-01-what", "", ""},
		"upper case":     {"00-" + strings.ToUpper(id) + "-00f067aa0ba902b7-01", "", ""},
		"zero trace":     {"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", "", ""},
		"zero parent":    {"00-" + id + "-0000000000000000-01", "", ""},
		"short":          {"00-" + id, "", ""},
		"text":           {"trace me", "", ""},
		"absent":         {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			body := `{` + someKey + `,"instance":"w","trace_id":"` + test.body + `"}`
			l := read[api.LeaseReply](t, r.post(t, "/leases", body, "traceparent", test.header), http.StatusCreated).Lease
			if l.TraceID != test.want {
				t.Errorf("got trace id %q, want %q", l.TraceID, test.want)
			}
		})
	}
}

// TestPolicy_defaults: what is absent takes the namespace's defaults, and what a
// store is asked for is within the policy.
func TestPolicy_defaults(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Namespaces[0].Policy.TTL = TTLPolicy{Min: 2 * time.Second, Default: 7 * time.Second, Max: 20 * time.Minute}
		o.Namespaces[0].Policy.MaxLifetime = time.Hour
	})
	var got contract.AcquireRequest
	r.store.acquire = func(ctx context.Context, a *contract.AcquireRequest) (contract.Result, error) {
		got = *a
		return r.store.Store.Acquire(ctx, a)
	}
	read[api.LeaseReply](t, r.post(t, "/leases", `{`+someKey+`,"instance":"w","ttl_ms":null}`, api.HeaderIdempotencyKey, "r-1"), http.StatusCreated)
	want := contract.AcquireRequest{
		Namespace: "default", RequestID: "r-1", Owner: "anonymous", Instance: "w", Key: got.Key,
		TTL: 7 * time.Second, MaxLifetime: time.Hour,
		Retention: contract.Retention{Idempotency: 20 * time.Minute, History: 168 * time.Hour, HistoryPerKey: 64},
		Limits:    contract.Limits{WaitersPerKey: 10000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the store was asked (-want +got):\n%s", diff)
	}
	p := wantProblem(t, r.post(t, "/leases", `{`+someKey+`,"instance":"w","max_lifetime_ms":5000}`), api.CodeInvalid)
	if p.Field != "max_lifetime_ms" {
		t.Errorf("a maximum lifetime below the default TTL: got field %q", p.Field)
	}
	p = wantProblem(t, r.post(t, "/leases", `{`+someKey+`,"instance":"w","ttl_ms":6000,"max_lifetime_ms":5000}`), api.CodeInvalid)
	if p.Field != "ttl_ms" {
		t.Errorf("a TTL above the maximum lifetime: got field %q", p.Field)
	}
	p = wantProblem(t, r.post(t, "/leases", `{`+someKey+`,"instance":"w","ttl_ms":1999}`), api.CodeInvalid)
	if !strings.Contains(p.Detail, "2000") || !strings.Contains(p.Detail, "1200000") {
		t.Errorf("the detail does not name the bounds: %s", p.Detail)
	}
}

// TestDeadline: what bounds a call, from ?timeout, the wait and the defaults.
func TestDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		query  string
		waitMS int
		want   time.Duration
	}{
		"default":             {"", 0, 10 * time.Second},
		"wait on top":         {"", 5000, 15 * time.Second},
		"timeout":             {"?timeout=2s", 0, 2 * time.Second},
		"longer than default": {"?timeout=30s", 0, 30 * time.Second},
		"shorter than wait":   {"?timeout=2s", 5000, 2 * time.Second},
		"longer than wait":    {"?timeout=6s", 5000, 6 * time.Second},
		"capped":              {"?timeout=24h", 0, DefaultMaxTimeout},
		"fraction":            {"?timeout=1.5s", 0, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var got time.Duration
			r.store.acquire = func(ctx context.Context, a *contract.AcquireRequest) (contract.Result, error) {
				deadline, ok := ctx.Deadline()
				if !ok {
					t.Error("the store was called without a deadline")
				}
				got = time.Until(deadline)
				return r.store.Store.Acquire(ctx, a)
			}
			before := time.Now()
			body := fmt.Sprintf(`{%s,"instance":"w","wait_ms":%d}`, someKey, test.waitMS)
			read[api.LeaseReply](t, r.post(t, "/leases"+test.query, body), http.StatusCreated)
			if spent := time.Since(before); got > test.want || got < test.want-spent {
				t.Errorf("got %v left after at most %v, want %v in all", got, spent, test.want)
			}
		})
	}
}
