package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fixture reads and checks the module under testdata.
func fixture(t *testing.T) (root string, tr *tree, pkgs []*typed) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("testdata", "globals"))
	if err != nil {
		t.Fatal(err)
	}
	tr, err = readTree(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	pkgs, err = typeCheck(t.Context(), root, tr)
	if err != nil {
		t.Fatal(err)
	}
	return root, tr, pkgs
}

// TestGlobals_broken compares what checkGlobals says about a module that breaks
// each of its rules with the comments // want "…" in that module. A line without
// one is a neighbour that is allowed.
func TestGlobals_broken(t *testing.T) {
	_, tr, pkgs := fixture(t)
	wanted := regexp.MustCompile(`// want ("[^"]*")`)
	var want []string
	for _, f := range tr.texts {
		for i, line := range strings.Split(string(f.content), "\n") {
			for _, match := range wanted.FindAllStringSubmatch(line, -1) {
				message, err := strconv.Unquote(match[1])
				if err != nil {
					t.Fatalf("%s:%d: %v", f.path, i+1, err)
				}
				want = append(want, fmt.Sprintf("%s:%d: %s", f.path, i+1, message))
			}
		}
	}
	got := lines(checkGlobals(tr, pkgs))
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("checkGlobals (-want +got):\n%s", diff)
	}
}

// TestSeen_broken has a file for another platform and one behind a known tag,
// which are fine, and one behind a tag that nothing sets.
func TestSeen_broken(t *testing.T) {
	root, tr, pkgs := fixture(t)
	want := []string{"seen/hidden.go: no check that needs types sees this file: add its build tag to buildTags in test/arch/load_test.go"}
	if diff := cmp.Diff(want, lines(checkSeen(root, tr, pkgs))); diff != "" {
		t.Errorf("checkSeen (-want +got):\n%s", diff)
	}
}

// TestTypeCheck_broken shows that code which does not compile is an error, and
// not a package about which nothing was found.
func TestTypeCheck_broken(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module leased\n\ngo 1.26.0\n",
		"a/a.go": "package a\n\nvar count = missing\n",
		"b/b.go": "package b\n\nimport _ \"leased/a\"\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := readTree(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := typeCheck(t.Context(), root, tr); err == nil || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("typeCheck = %v, want an error about the undefined name", err)
	}
}
