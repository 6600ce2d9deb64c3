package gateway

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"leased/contract"
)

func listParams() []string {
	return []string{
		"owner", "instance", "tenant", "program", "target_type", "target", "actor", "job_id",
		"state", "expires_before", "limit", "cursor",
	}
}

// takeQuery parses the query and refuses what does not belong in it, on every
// route a credential: URLs end up in logs and histories.
func (x *exchange) takeQuery() error {
	if x.r.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(x.r.URL.RawQuery)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if isCredential(name) {
			return contract.Invalid(cutText(name, maxField), "looks like a credential, which does not belong in a URL; send it in the Authorization header")
		}
	}
	if x.route.public {
		return nil
	}
	if err != nil {
		return contract.Invalid("query", "is not a valid query string")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		known := slices.Contains(x.route.params, name) || (name == "timeout" && x.route.takesTimeout())
		switch {
		case name == "":
			return contract.Invalid("query", "has a parameter without a name")
		case !known:
			return contract.Invalid(cutText(name, maxField), "is not a query parameter of this route")
		case len(values[name]) > 1:
			return contract.Invalid(name, "is given %d times", len(values[name]))
		case values[name][0] == "":
			// An empty filter would match everything, which is the opposite of what
			// a script with an unset variable meant.
			return contract.Invalid(name, "is empty; leave it out")
		}
	}
	x.query = values
	return nil
}

func isCredential(name string) bool {
	switch strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name)) {
	case "accesstoken", "apikey", "auth", "authorization", "authtoken", "bearer", "bearertoken", "clientsecret",
		"credential", "credentials", "idtoken", "jwt", "key", "passwd", "password", "refreshtoken", "secret",
		"session", "sig", "signature", "token", "xapikey":
		return true
	}
	return false
}

func (x *exchange) takeTimeout() error {
	text := x.query.Get("timeout")
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return contract.Invalid("timeout", "must be a positive duration such as 500ms or 2s")
	}
	x.call.Timeout = d
	return nil
}

// takeLimit returns the page size asked for, 0 when none was.
func (x *exchange) takeLimit() (int, error) {
	text := x.query.Get("limit")
	if text == "" {
		return 0, nil
	}
	// Atoi takes a sign and leading zeros: "+5" and "05" would be "5".
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > contract.MaxPage || strconv.Itoa(n) != text {
		return 0, contract.Invalid("limit", "must be 1 to %d", contract.MaxPage)
	}
	return n, nil
}

// takeFilters returns the list request that the query stands for.
func (x *exchange) takeFilters() (*contract.ListRequest, error) {
	r := &contract.ListRequest{
		Owner: x.query.Get("owner"), Instance: x.query.Get("instance"),
		Tenant: x.query.Get("tenant"), Program: x.query.Get("program"),
		Target: contract.Target{Type: contract.TargetType(x.query.Get("target_type")), ID: x.query.Get("target")},
		Actor:  x.query.Get("actor"), JobID: x.query.Get("job_id"), Cursor: x.query.Get("cursor"),
	}
	var err error
	if r.Limit, err = x.takeLimit(); err != nil {
		return nil, err
	}
	switch {
	case r.Target.Type == "" && r.Target.ID != "":
		return nil, contract.Invalid("target_type", "is required beside target, to tell how it is read")
	case r.Target.Type != "" && r.Target.ID == "":
		return nil, contract.Invalid("target", "is required beside target_type")
	}
	if state := x.query.Get("state"); state != "" {
		if r.State, err = contract.ParseState(state); err != nil {
			return nil, err
		}
	}
	if at := x.query.Get("expires_before"); at != "" {
		// Parse takes a comma before the fraction, which RFC 3339 does not.
		if r.ExpiresBefore, err = time.Parse(time.RFC3339Nano, at); err != nil || strings.Contains(at, ",") {
			return nil, contract.Invalid("expires_before", "must be an RFC 3339 time such as 2026-01-31T12:00:00Z, with + written as %%2B")
		}
	}
	return r, nil
}
