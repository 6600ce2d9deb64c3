package gateway

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"leased/contract"
	"leased/gateway/api"
)

// badValue is a JSON value that a field must refuse, and what must be blamed.
type badValue struct {
	name, json string
	field      string // when it is not the field itself
}

// badTexts are refused by every text field; limit is the length it may have, in bytes.
func badTexts(limit int, required bool) []badValue {
	bad := []badValue{
		{name: "number", json: `5`},
		{name: "boolean", json: `true`},
		{name: "list", json: `["a"]`},
		{name: "object", json: `{}`},
		{name: "too long", json: `"` + strings.Repeat("x", limit+1) + `"`},
		{name: "control character", json: `"a\u0000b"`},
		{name: "raw control character", json: "\"a\x01b\""},
		{name: "line end", json: `"a\nb"`},
		{name: "delete", json: `"a\u007fb"`},
		{name: "next line", json: `"a\u0085b"`},
		{name: "leading space", json: `" a"`},
		{name: "trailing space", json: `"a "`},
		{name: "zero width", json: `"a\u200bb"`},
		{name: "bidirectional override", json: `"a\u202eb"`},
		{name: "invalid UTF-8", json: "\"a\xffb\""},
		{name: "lone surrogate", json: `"a\ud800b"`},
		{name: "replacement character", json: `"a\ufffdb"`},
	}
	if required {
		bad = append(bad, badValue{name: "null", json: `null`}, badValue{name: "empty", json: `""`})
	}
	return bad
}

// badNumbers are refused by every whole-number field.
func badNumbers() []badValue {
	return []badValue{
		{name: "fraction", json: `1.5`},
		{name: "whole fraction", json: `1000.0`},
		{name: "exponent", json: `1e3`},
		{name: "minus one", json: `-1`},
		{name: "2^63", json: `9223372036854775808`},
		{name: "2^63-1", json: `9223372036854775807`},
		{name: "2^64", json: `18446744073709551616`},
		{name: "huge", json: `1` + strings.Repeat("0", 400)},
		{name: "duration text", json: `"1s"`},
		{name: "number text", json: `"1000"`},
		{name: "boolean", json: `true`},
		{name: "list", json: `[1000]`},
		{name: "object", json: `{"ms":1000}`},
	}
}

func badToken() []badValue {
	return append(badNumbers(),
		badValue{name: "zero", json: `0`},
		badValue{name: "null", json: `null`},
		badValue{name: "2^53", json: `9007199254740992`},
	)
}

func badObjects() []badValue {
	return []badValue{
		{name: "null", json: `null`},
		{name: "text", json: `"a"`},
		{name: "number", json: `5`},
		{name: "list", json: `[]`},
		{name: "empty", json: `{}`},
	}
}

func badIDs() []badValue {
	return []badValue{
		{name: "number", json: `5`},
		{name: "null", json: `null`},
		{name: "empty", json: `""`},
		{name: "short", json: `"abc"`},
		{name: "padded", json: `"AQAAAAAAAAAAAAAAAAAAAA=="`},
		{name: "other alphabet", json: `"+/AAAAAAAAAAAAAAAAAAAA"`},
		{name: "trailing bits", json: `"AQAAAAAAAAAAAAAAAAAAAB"`},
		{name: "zero", json: `"AAAAAAAAAAAAAAAAAAAAAA"`},
	}
}

// fieldCase is one field of one body: what replaces its value in a valid body.
type fieldCase struct {
	field    string
	old      string // the field's name and value as they stand in the body
	required bool
	bad      []badValue
}

// bodyCase is one route that takes a body.
type bodyCase struct {
	path, body string
	fields     []fieldCase
}

const (
	someLease = "JAAAAAAAAAAAAAAAAAAAAAEAAAAAAAAAAAAAAAAAAAE"
	someKey   = `"key":{"tenant":"acme","program":"recon","target":{"type":"domain","id":"example.com"},"actor":"crawler","workflow":"w","operation":"scan"}`
)

// badDomains leaves out the zero-width space, which UTS #46 drops from a domain.
func badDomains() []badValue {
	bad := slices.DeleteFunc(badTexts(1024, true), func(b badValue) bool { return b.name == "zero width" })
	return append(bad, badValue{name: "no domain", json: `"a..b"`})
}

func keyFields() []fieldCase {
	return []fieldCase{
		{"key", someKey, true, badObjects()},
		{"key.tenant", `"tenant":"acme"`, true, badTexts(256, true)},
		{"key.program", `"program":"recon"`, false, badTexts(256, false)},
		{"key.target", `"target":{"type":"domain","id":"example.com"}`, true, badObjects()},
		{"key.target.type", `"type":"domain"`, true, append(badTexts(256, true), badValue{name: "unknown", json: `"host"`})},
		{"key.target.id", `"id":"example.com"`, true, badDomains()},
		{"key.actor", `"actor":"crawler"`, true, badTexts(256, true)},
		{"key.workflow", `"workflow":"w"`, false, badTexts(256, false)},
		{"key.operation", `"operation":"scan"`, false, badTexts(256, false)},
	}
}

func metadataCase() fieldCase {
	pairs := make([]string, 17)
	for i := range pairs {
		pairs[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	return fieldCase{"metadata", `"metadata":{"a":"b"}`, false, []badValue{
		{name: "text", json: `"a"`},
		{name: "list", json: `[]`},
		{name: "number value", json: `{"x":5}`, field: "metadata.x"},
		{name: "null value", json: `{"x":null}`, field: "metadata.x"},
		{name: "nested", json: `{"x":{"y":"z"}}`, field: "metadata.x"},
		{name: "duplicate", json: `{"x":"1","x":"2"}`, field: "metadata.x"},
		{name: "invalid UTF-8", json: "{\"x\":\"\xff\"}", field: "metadata.x"},
		{name: "empty name", json: `{"":"v"}`},
		{name: "long name", json: `{"` + strings.Repeat("n", 257) + `":"v"}`},
		{name: "17 pairs", json: `{` + strings.Join(pairs, ",") + `}`},
		{name: "4097 bytes", json: `{"x":"` + strings.Repeat("v", 4096) + `"}`},
	}}
}

func bodyCases() []bodyCase {
	number := func(more ...badValue) []badValue { return append(badNumbers(), more...) }
	zero := badValue{name: "zero", json: `0`}
	token := fieldCase{"token", `"token":7`, true, badToken()}
	instance := fieldCase{"instance", `"instance":"w-1"`, true, badTexts(256, true)}
	return []bodyCase{
		{
			path: "/leases",
			body: `{` + someKey + `,"instance":"w-1","ttl_ms":30000,"max_lifetime_ms":3600000,"wait_ms":0,` +
				`"execution_id":"e-1","job_id":"j-1","trace_id":"t-1","metadata":{"a":"b"}}`,
			fields: append(keyFields(), instance, metadataCase(),
				fieldCase{"ttl_ms", `"ttl_ms":30000`, false, number(zero, badValue{name: "below", json: `999`}, badValue{name: "above", json: `3600001`})},
				fieldCase{"max_lifetime_ms", `"max_lifetime_ms":3600000`, false, number(zero, badValue{name: "above", json: `86400001`})},
				fieldCase{"wait_ms", `"wait_ms":0`, false, number(badValue{name: "above", json: `300001`})},
				fieldCase{"execution_id", `"execution_id":"e-1"`, false, badTexts(256, false)},
				fieldCase{"job_id", `"job_id":"j-1"`, false, badTexts(256, false)},
				fieldCase{"trace_id", `"trace_id":"t-1"`, false, badTexts(256, false)},
			),
		},
		{
			path: "/leases/" + someLease + "/renew", body: `{"token":7,"instance":"w-1","ttl_ms":30000}`,
			fields: []fieldCase{token, instance,
				{"ttl_ms", `"ttl_ms":30000`, false, number(zero, badValue{name: "below", json: `999`}, badValue{name: "above", json: `3600001`})},
			},
		},
		{path: "/leases/" + someLease + "/release", body: `{"token":7,"instance":"w-1"}`, fields: []fieldCase{token, instance}},
		{
			path: "/leases/" + someLease + "/revoke", body: `{"reason":"gone","mode":"revoke"}`,
			fields: []fieldCase{
				{"reason", `"reason":"gone"`, true, badTexts(1024, true)},
				{"mode", `"mode":"revoke"`, false, []badValue{{name: "unknown", json: `"kill"`}, {name: "other case", json: `"Revoke"`}, {name: "number", json: `1`}}},
			},
		},
		{
			path: "/renew", body: `{"instance":"w-1","leases":[{"lease_id":"` + someLease + `","token":7}]}`,
			fields: []fieldCase{instance,
				{"leases", `"leases":[{"lease_id":"` + someLease + `","token":7}]`, true, []badValue{
					{name: "null", json: `null`}, {name: "empty", json: `[]`}, {name: "object", json: `{}`}, {name: "text", json: `"a"`},
					{name: "null item", json: `[null]`, field: "leases[0].lease_id"},
					{name: "number item", json: `[5]`, field: "leases[0]"},
					{name: "unknown field", json: `[{"lease":"x"}]`, field: "leases[0].lease"},
					{name: "twice", json: `[{"lease_id":"` + someLease + `","token":7},{"lease_id":"` + someLease + `","token":7}]`, field: "leases[1].lease_id"},
					{name: "1001 items", json: `[` + strings.Repeat(`{"lease_id":"x","token":7},`, 1000) + `{"lease_id":"x","token":7}]`},
				}},
				{"leases[0].lease_id", `"lease_id":"` + someLease + `"`, true, badIDs()},
				{"leases[0].token", `"token":7`, true, badToken()},
			},
		},
		{path: "/resolve", body: `{` + someKey + `}`, fields: keyFields()},
		{path: "/check", body: `{` + someKey + `,"token":7}`, fields: append(keyFields(), token)},
		{
			path: "/check", body: `{"key_id":"JAAAAAAAAAAAAAAAAAAAAA","token":7}`,
			fields: []fieldCase{token, {"key_id", `"key_id":"JAAAAAAAAAAAAAAAAAAAAA"`, false, badIDs()[3:]}},
		},
	}
}

// TestFields puts every bad value into every field of every body. Each must be
// refused with the field's name, and nothing may have changed.
func TestFields(t *testing.T) {
	r := newRig(t)
	refused := func(t *testing.T, path, body, field string) {
		t.Helper()
		if p := wantProblem(t, r.post(t, path, body), api.CodeInvalid); p.Field != field {
			t.Errorf("got field %q, want %q (%s) for %.200s", p.Field, field, p.Detail, body)
		}
	}
	count := 0
	for _, b := range bodyCases() {
		for _, f := range b.fields {
			name, _, _ := strings.Cut(f.old, ":")
			swap := func(with string) string { return swapped(t, b.body, f.old, with) }
			for _, bad := range f.bad {
				field := f.field
				if bad.field != "" {
					field = bad.field
				}
				t.Run(b.path+"/"+f.field+"/"+bad.name, func(t *testing.T) { refused(t, b.path, swap(name+":"+bad.json), field) })
				count++
			}
			t.Run(b.path+"/"+f.field+"/duplicate", func(t *testing.T) { refused(t, b.path, swap(f.old+","+f.old), f.field) })
			upper := strings.ToUpper(name)
			other := strings.TrimSuffix(f.field, strings.Trim(name, `"`)) + strings.Trim(upper, `"`)
			t.Run(b.path+"/"+f.field+"/other case", func(t *testing.T) { refused(t, b.path, swap(upper+strings.TrimPrefix(f.old, name)), other) })
			if f.required {
				t.Run(b.path+"/"+f.field+"/missing", func(t *testing.T) { refused(t, b.path, without(swap("")), f.field) })
			}
		}
	}
	if count < 500 {
		t.Errorf("tried %d values; the tables are not what they were", count)
	}
	wantUntouched(t, r)
}

func wantUntouched(t *testing.T, r *rig) {
	t.Helper()
	for _, state := range []contract.State{contract.StateActive, contract.StateReleased, contract.StateRevoked} {
		page, err := r.store.List(t.Context(), &contract.ListRequest{Namespace: "default", State: state})
		if err != nil || len(page.Leases) > 0 {
			t.Errorf("after refusals only, got %d %s leases, %v", len(page.Leases), state, err)
		}
	}
}

// swapped replaces old in body, which must stand there once.
func swapped(t *testing.T, body, old, with string) string {
	t.Helper()
	if strings.Count(body, old) != 1 {
		t.Fatalf("%s stands %d times in %s", old, strings.Count(body, old), body)
	}
	return strings.Replace(body, old, with, 1)
}

// without removes the comma that a removed field left behind.
func without(body string) string {
	return strings.NewReplacer("{,", "{", ",,", ",", ",}", "}").Replace(body)
}

// TestFields_valid makes sure that what TestFields varies is valid itself: a
// body that was always refused would pass there.
func TestFields_valid(t *testing.T) {
	r := newRig(t)
	for _, b := range bodyCases() {
		if a := r.post(t, b.path, b.body); a.status == http.StatusBadRequest {
			t.Errorf("%s: the valid body was refused: %s", b.path, a.body)
		}
	}
}

// TestBody is about bodies as a whole, and about names that no request has.
func TestBody(t *testing.T) {
	tests := map[string]struct{ change, field string }{
		"empty":           {"", "body"},
		"white space":     {" \n", "body"},
		"null":            {"null", "body"},
		"list":            {"[]", "body"},
		"text":            {`"a"`, "body"},
		"number":          {"5", "body"},
		"no JSON":         {"token=7", "body"},
		"trailing brace":  {"BODY}", "body"},
		"second value":    {"BODYBODY", "body"},
		"trailing text":   {"BODY x", "body"},
		"unknown field":   {`{"extra":1,BODY`, "extra"},
		"unknown, nested": {`{"extra":{"token":1},BODY`, "extra"},
		"unknown, empty":  {`{"":1,BODY`, "body"},
		"byte order mark": {"\ufeffBODY", "body"},
	}
	r := newRig(t)
	for _, b := range bodyCases() {
		for _, name := range slices.Sorted(maps.Keys(tests)) {
			test := tests[name]
			t.Run(b.path+"/"+name, func(t *testing.T) {
				body := strings.ReplaceAll(test.change, "BODY", b.body)
				if strings.HasSuffix(test.change, ",BODY") {
					body = strings.Replace(test.change, "BODY", strings.TrimPrefix(b.body, "{"), 1)
				}
				a := r.call(t, http.MethodPost, "/v1/namespaces/default"+b.path, body, "Content-Type", api.MediaType)
				if p := wantProblem(t, a, api.CodeInvalid); p.Field != test.field {
					t.Errorf("got field %q, want %q (%s)", p.Field, test.field, p.Detail)
				}
			})
		}
		for n := range len(b.body) {
			a := r.call(t, http.MethodPost, "/v1/namespaces/default"+b.path, b.body[:n], "Content-Type", api.MediaType)
			if p := wantProblem(t, a, api.CodeInvalid); p.Field == "" {
				t.Errorf("%s cut after %d bytes: got no field", b.path, n)
			}
		}
	}
	wantUntouched(t, r)
}
