package main

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// settings is a configuration that was read and found valid.
type settings struct {
	config
	file string // empty when there was none
	// origins tells where each value came from that was not a default.
	origins map[string]string
	// strange are LEASED_ variables that nothing reads.
	strange []string
}

// loadConfig reads the configuration: file over defaults, environ over file,
// flags over all. The error is a problems, or about the file itself.
func loadConfig(file string, environ []string, flags []override) (*settings, error) {
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		if root, err = parseYAML(file, text); err != nil {
			return nil, err
		}
	}
	d := &decoder{file: file, origin: map[*yaml.Node]string{}, origins: map[string]string{}}
	env, strange, bad := envOverrides(environ, root)
	d.problems = bad
	for _, o := range slices.Concat(env, flags) {
		d.apply(root, o)
	}
	s := &settings{config: defaultConfig(), file: file, origins: d.origins, strange: strange}
	d.decode(root, reflect.ValueOf(&s.config).Elem(), nil)
	if err := d.problems.err(); err != nil {
		return nil, err
	}
	s.fillDefaults()
	if err := s.validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// isSet reports whether the configuration gives path a value or, for a section,
// names it.
func (s *settings) isSet(path ...string) bool {
	_, ok := s.origins[pathKey(path)]
	return ok
}

// at returns where the value at path came from: its own line, or that of the
// section that leaves it out.
func (s *settings) at(path ...string) string {
	for n := len(path); n > 0; n-- {
		if origin, ok := s.origins[pathKey(path[:n])]; ok {
			return origin
		}
	}
	return s.file
}

// fillDefaults adds what depends on other settings: the embedded store when no
// backend is configured, the default namespace when none is, and the backend of
// a namespace where there is only one.
func (s *settings) fillDefaults() {
	if !s.isSet("backends") || len(s.Backends) == 0 {
		s.Backends = map[string]backendConfig{defaultBackend: {Type: backendRaftKV}}
	}
	if !s.isSet("namespaces") || len(s.Namespaces) == 0 {
		var ns namespaceConfig
		ns.setDefaults()
		s.Namespaces = map[string]namespaceConfig{defaultNamespace: ns}
	}
	if len(s.Backends) != 1 {
		return
	}
	for only := range s.Backends {
		for name, ns := range s.Namespaces {
			if ns.Backend == "" {
				ns.Backend = only
				s.Namespaces[name] = ns
			}
		}
	}
}

// usedBackends returns the names of the backends that a namespace is on, sorted.
// Only those are opened.
func (s *settings) usedBackends() []string {
	used := map[string]struct{}{}
	for _, ns := range s.Namespaces {
		used[ns.Backend] = struct{}{}
	}
	return slices.Sorted(maps.Keys(used))
}
