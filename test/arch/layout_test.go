package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checkDocs wants each package's comment in its doc.go, and there alone: of two
// comments a reader of the source finds one, and the documentation joins both.
func checkDocs(tr *tree) []violation {
	var bad []violation
	for _, p := range tr.packages {
		found := false
		for _, s := range p.sources {
			// Text drops directives, so that //go:build is no comment.
			comment := s.syntax.Doc.Text()
			switch isDoc := path.Base(s.path) == "doc.go"; {
			case !isDoc && comment != "" && !s.test:
				bad = append(bad, violation{s.path, "the package comment belongs in doc.go; a blank line makes this one an ordinary comment"})
			case isDoc && comment == "":
				bad = append(bad, violation{s.path, "has no package comment: purpose, what it must not know, invariants"})
				found = true
			case isDoc:
				found = true
				if p.name != "main" && !strings.HasPrefix(comment, "Package "+p.name+" ") {
					bad = append(bad, violation{s.path, fmt.Sprintf("the package comment starts with %q, so that go doc lists it", "Package "+p.name)})
				}
			}
		}
		if !found {
			bad = append(bad, violation{p.path, "has no doc.go: purpose, what it must not know, invariants"})
		}
	}
	return bad
}

// checkNames refuses names under which anything can gather.
func checkNames(tr *tree) []violation {
	vague := []string{"base", "common", "helper", "helpers", "misc", "shared", "types", "util", "utils"}
	var bad []violation
	for _, p := range tr.packages {
		for _, name := range append(strings.Split(p.path, "/"), p.name) {
			if slices.Contains(vague, name) {
				bad = append(bad, violation{p.path, fmt.Sprintf("the name %q says nothing about what belongs there: name it after what it does", name)})
				break
			}
		}
	}
	return bad
}

// checkInits refuses init: it runs for every importer, in an order that nobody
// chose, and its errors can only panic.
func checkInits(tr *tree) []violation {
	var bad []violation
	for _, p := range tr.packages {
		for _, s := range p.sources {
			for _, decl := range s.syntax.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
					bad = append(bad, violation{tr.at(f.Pos()), "init runs whether it is wanted or not: let main, or a constructor, call it"})
				}
			}
		}
	}
	return bad
}

// checkHarnesses wants the contract suite run by every store, from a test whose
// name `make contract` selects: a suite that nobody runs on a backend holds
// nothing there, and does so in silence.
func checkHarnesses(tr *tree) []violation {
	var bad []violation
	for _, p := range tr.packages {
		isBackend, _ := path.Match("backends/*", p.path)
		if !isBackend && p.path != "contract/memstore" {
			continue
		}
		runs := slices.ContainsFunc(p.sources, func(s source) bool {
			return s.test && slices.ContainsFunc(s.imports, func(i imported) bool {
				return i.path == modulePath+"/contract/contracttest"
			}) && slices.ContainsFunc(s.syntax.Decls, func(d ast.Decl) bool {
				f, ok := d.(*ast.FuncDecl)
				return ok && strings.HasPrefix(f.Name.Name, "TestContract")
			})
		})
		if !runs {
			bad = append(bad, violation{p.path, "no test named TestContract… runs leased/contract/contracttest: the suite is the definition of done for a store"})
		}
	}
	return bad
}

// checkNamedTests wants the tests that documents name as evidence to exist. A
// renamed test leaves a claim behind that nothing holds.
func checkNamedTests(tr *tree) []violation {
	exists := make(map[string]bool)
	for _, p := range tr.packages {
		for _, s := range p.sources {
			for _, decl := range s.syntax.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && s.test && f.Recv == nil {
					exists[f.Name.Name] = true
				}
			}
		}
	}
	named := regexp.MustCompile("`((?:Benchmark|Fuzz|Test)[A-Z_]\\w*)[`/]")
	var bad []violation
	for _, f := range tr.texts {
		if path.Ext(f.path) != ".md" {
			continue
		}
		for _, at := range named.FindAllSubmatchIndex(f.content, -1) {
			if test := string(f.content[at[2]:at[3]]); !exists[test] {
				bad = append(bad, violation{fmt.Sprintf("%s:%d", f.path, lineOf(f.content, at[0])),
					test + " is named as a test and does not exist"})
			}
		}
	}
	return bad
}

func lineOf(content []byte, offset int) int {
	return 1 + bytes.Count(content[:offset], []byte("\n"))
}

// checkTexts refuses what works only on the machine where it was written: root
// is where this checkout lies. A root of one part, such as a container's /src,
// is a name that a file may use for something else.
func checkTexts(tr *tree, root string) []violation {
	// The character classes keep this file from matching itself.
	type rule struct {
		pattern *regexp.Regexp
		why     string
	}
	rules := []rule{
		{regexp.MustCompile(`\.\.[/\\]shared\b`), "names a folder outside the repository"},
		{regexp.MustCompile(`/[.]library\b`), "names a tool of one machine"},
		{regexp.MustCompile(`/[h]ome/[a-z]|/[r]oot/`), "names a folder of one person's machine"},
		{regexp.MustCompile(`\b(proxy|sum)[.]golang[.]org|registry[.]npmjs|deb[.]debian`), "names a package registry; the machine is set up with its own"},
	}
	if strings.Count(root, "/") > 1 {
		rules = append(rules, rule{regexp.MustCompile(regexp.QuoteMeta(root) + `\b`), "names the place of one checkout"})
	}
	var bad []violation
	for _, f := range tr.texts {
		for _, rule := range rules {
			for _, at := range rule.pattern.FindAllIndex(f.content, -1) {
				bad = append(bad, violation{fmt.Sprintf("%s:%d", f.path, lineOf(f.content, at[0])),
					fmt.Sprintf("%q: %s", f.content[at[0]:at[1]], rule.why)})
			}
		}
	}
	return bad
}

func TestDocs(t *testing.T) {
	_, tr := repository(t)
	report(t, checkDocs(tr))
}

func TestNames(t *testing.T) {
	_, tr := repository(t)
	report(t, checkNames(tr))
}

func TestInits(t *testing.T) {
	_, tr := repository(t)
	report(t, checkInits(tr))
}

func TestHarnesses(t *testing.T) {
	_, tr := repository(t)
	report(t, checkHarnesses(tr))
}

func TestNamedTests(t *testing.T) {
	_, tr := repository(t)
	report(t, checkNamedTests(tr))
}

func TestTexts(t *testing.T) {
	root, tr := repository(t)
	report(t, checkTexts(tr, root))
}
