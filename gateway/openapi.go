package gateway

import (
	_ "embed"
	"fmt"

	"github.com/go-json-experiment/json"
	"go.yaml.in/yaml/v3"
)

// openapiYAML is embedded here rather than in package api: the SDK imports that
// and has no use for it.
//
//go:embed api/openapi.yaml
var openapiYAML string

// openapiJSON returns the description of the API as JSON.
func openapiJSON() ([]byte, error) {
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(openapiYAML), &doc); err != nil {
		return nil, fmt.Errorf("gateway: openapi.yaml: %w", err)
	}
	b, err := json.Marshal(doc, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("gateway: openapi.yaml: %w", err)
	}
	return b, nil
}
