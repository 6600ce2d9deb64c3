package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
)

// FuzzConfig reads any file. It is refused with a place and a remedy, or it is a
// configuration that is the same when printed and read again.
func FuzzConfig(f *testing.F) {
	documented, err := os.ReadFile("testdata/documented.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(documented))
	for _, s := range []string{
		"", "a", "- a", "node: {id: a}\n", "node: [a]", "namespaces:\n  jobs: {ttl: {max: 2h}}\n", "namespaces: {jobs: }",
		"a: &a [*a]", "node: *x", "<<: {a: b}", "? [a]\n: b\n", "node: {id: !!binary aGk=}", "insecure: yes", "\x00", "---\n---\n",
		"cluster: {members: {n1: 127.0.0.1:1}}", "http: {listen: \"[::1]:0\"}", "node: {id: ~}", "namespaces: {a.b: {max_wait: 0s}}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "leased.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		first, err := loadConfig(file, nil, nil)
		if err != nil {
			if wrong, ok := err.(problems); ok && len(wrong) == 0 || err.Error() == "" {
				t.Errorf("%q is refused without a word", text)
			}
			return
		}
		var printed bytes.Buffer
		if err := printConfig(&env{stdout: &printed}, first); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, printed.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		second, err := loadConfig(file, nil, nil)
		if err != nil {
			t.Fatalf("%q is read, and refused when printed as %q: %v", text, printed.String(), err)
		}
		if diff := cmp.Diff(first.config, second.config, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-read +printed and read again):\n%s", text, diff)
		}
	})
}

// FuzzConfig_overrides gives every setting any value by flag: what is taken is
// taken from a file too, and means the same there.
func FuzzConfig_overrides(f *testing.F) {
	all := leaves(configType(), nil)
	for i := range all {
		f.Add(i, "jobs", "1h")
	}
	f.Add(0, "a.b", "~")
	f.Add(1, "", "\x00")
	f.Fuzz(func(t *testing.T, i int, name, value string) {
		if i < 0 || i >= len(all) || name == "" || value == "" {
			return
		}
		path := make([]string, len(all[i]))
		for j, part := range all[i] {
			path[j] = part
			if part == anyName {
				path[j] = name
			}
		}
		s, err := loadConfig("", nil, []override{{path, value, "--x"}})
		root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		d := &decoder{origin: map[*yaml.Node]string{}, origins: map[string]string{}}
		d.apply(root, override{path, value, "--x"})
		if text, e := yaml.Marshal(root); e == nil && err == nil {
			file := filepath.Join(t.TempDir(), "leased.yaml")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			fromFile, err := loadConfig(file, nil, nil)
			if err != nil {
				t.Fatalf("%v = %q is taken from a flag and refused from the file %q: %v", path, value, text, err)
			}
			if diff := cmp.Diff(fromFile.config, s.config, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%v = %q (-file +flag):\n%s", path, value, diff)
			}
		}
	})
}
