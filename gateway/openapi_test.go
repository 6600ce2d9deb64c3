package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"leased/gateway/api"
)

func loadOpenAPI(tb testing.TB) *openapi3.T {
	tb.Helper()
	b, err := openapiJSON()
	if err != nil {
		tb.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(b)
	if err != nil {
		tb.Fatal(err)
	}
	return doc
}

func TestOpenAPI_valid(t *testing.T) {
	doc := loadOpenAPI(t)
	if !doc.IsOpenAPI31OrLater() {
		t.Fatalf("got version %s, want 3.1", doc.OpenAPI)
	}
	if err := doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater()); err != nil {
		t.Error(err)
	}
}

// inTemplate returns gin's path as OpenAPI writes it.
func inTemplate(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if name, ok := strings.CutPrefix(p, ":"); ok {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

func TestOpenAPI_routes(t *testing.T) {
	var want, got []string
	for _, r := range routes() {
		want = append(want, r.method+" "+inTemplate(r.path))
	}
	for path, item := range loadOpenAPI(t).Paths.Map() {
		for method := range item.Operations() {
			got = append(got, method+" "+path)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes of the gateway (-) and of openapi.yaml (+):\n%s", diff)
	}
}

// TestOpenAPI_parameters compares what each route takes from its query.
func TestOpenAPI_parameters(t *testing.T) {
	doc := loadOpenAPI(t)
	for _, r := range routes() {
		item := doc.Paths.Value(inTemplate(r.path))
		operation := item.GetOperation(r.method)
		var got []string
		for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
			if p.Value.In == openapi3.ParameterInQuery {
				got = append(got, p.Value.Name)
			}
		}
		want := slices.Clone(r.params)
		if r.takesTimeout() {
			want = append(want, "timeout")
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s: parameters (-gateway +openapi.yaml):\n%s", r.method, r.path, diff)
		}
		keyed := slices.ContainsFunc(operation.Parameters, func(p *openapi3.ParameterRef) bool {
			return p.Value.Name == api.HeaderIdempotencyKey
		})
		if keyed != r.changes() {
			t.Errorf("%s %s: openapi.yaml has an Idempotency-Key: %v, the gateway: %v", r.method, r.path, keyed, r.changes())
		}
	}
}

func TestOpenAPI_codes(t *testing.T) {
	var want []any
	for _, c := range api.Codes() {
		want = append(want, string(c))
	}
	got := loadOpenAPI(t).Components.Schemas["Problem"].Value.Properties["code"].Value.Enum
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("codes of the API (-) and of openapi.yaml (+):\n%s", diff)
	}
}

func TestOpenAPI_served(t *testing.T) {
	a := newRig(t).call(t, http.MethodGet, "/openapi.json", "")
	doc := read[map[string]any](t, a, http.StatusOK)
	if got := doc["openapi"]; got != "3.1.0" {
		t.Errorf("got openapi %v, want 3.1.0", got)
	}
	if got := a.header.Get("Content-Type"); got != api.MediaType {
		t.Errorf("got Content-Type %q, want %q", got, api.MediaType)
	}
}

// checkAgainstOpenAPI holds a reply to what openapi.yaml says of it.
func checkAgainstOpenAPI(t *testing.T, doc *openapi3.T, method, path string, a answer) {
	t.Helper()
	item := doc.Paths.Value(path)
	if item == nil || item.GetOperation(method) == nil {
		t.Fatalf("openapi.yaml has no %s %s", method, path)
	}
	responses := item.GetOperation(method).Responses
	response := responses.Status(a.status)
	if response == nil {
		response = responses.Default()
	}
	if response == nil {
		t.Fatalf("openapi.yaml has no reply %d for %s %s", a.status, method, path)
	}
	media := response.Value.Content.Get(a.header.Get("Content-Type"))
	if media == nil {
		t.Fatalf("openapi.yaml has no %s for %s %s", a.header.Get("Content-Type"), method, path)
	}
	var v any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatal(err)
	}
	if err := media.Schema.Value.VisitJSON(v, openapi3.EnableJSONSchema2020(), openapi3.MultiErrors()); err != nil {
		t.Errorf("%s %s: the reply is not what openapi.yaml says: %v\n%s", method, path, err, a.body)
	}
}

// TestOpenAPI_schemaCanFail makes sure that the check above finds something.
func TestOpenAPI_schemaCanFail(t *testing.T) {
	schema := loadOpenAPI(t).Components.Schemas["Lease"].Value
	if err := schema.VisitJSON(map[string]any{"token": 1}, openapi3.EnableJSONSchema2020()); err == nil {
		t.Error("a lease with a token and nothing else passed for a lease")
	}
}
