package arch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLayout_broken shows every rule of layout_test.go fire, and stay silent on
// the nearest thing that is right.
func TestLayout_broken(t *testing.T) {
	texts := func(tr *tree) []violation { return checkTexts(tr, "/checkouts/of-one-person") }
	const (
		noDoc   = "has no doc.go: purpose, what it must not know, invariants"
		noSuite = "no test named TestContract… runs leased/contract/contracttest: the suite is the definition of done for a store"
	)
	suite := "package etcd_test\n\nimport \"leased/contract/contracttest\"\n\n"
	tests := map[string]struct {
		check func(*tree) []violation
		files files
		want  []string
	}{
		"documented": {checkDocs, files{
			"a/doc.go": "// Package a does.\npackage a\n", "a/a.go": "package a\n",
			"b/doc.go": "// Command b does.\npackage main\n",
		}, nil},
		"no doc.go": {checkDocs, files{"a/a.go": "package a\n"},
			[]string{"a: " + noDoc}},
		"no doc.go beside tests": {checkDocs, files{"a/a_test.go": "package a_test\n"},
			[]string{"a: " + noDoc}},
		"no doc.go in a command": {checkDocs, files{"cmd/a/main.go": "package main\n"},
			[]string{"cmd/a: " + noDoc}},
		"doc.go says nothing": {checkDocs, files{"a/doc.go": "//go:build linux\npackage a\n"},
			[]string{"a/doc.go: has no package comment: purpose, what it must not know, invariants"}},
		"doc.go of another package": {checkDocs, files{"a/doc.go": "// Package b does.\npackage a\n"},
			[]string{`a/doc.go: the package comment starts with "Package a", so that go doc lists it`}},
		"two package comments": {checkDocs, files{
			"a/doc.go": "// Package a does.\npackage a\n", "a/a.go": "// The encoder.\npackage a\n",
		}, []string{"a/a.go: the package comment belongs in doc.go; a blank line makes this one an ordinary comment"}},
		"another module's folder is its own": {checkDocs, files{
			"test/server/go.mod": "module server\n", "test/server/main.go": "package main\n",
			"test/server/x/x.go": "package x\n",
		}, nil},
		"test data is no package": {checkDocs, files{
			"a/testdata/x.go": "package x\n", "_old/x.go": "package x\n", ".tool/x.go": "package x\n",
		}, nil},

		"a name": {checkNames, files{"gateway/quota.go": "package gateway\n"}, nil},
		"a vague folder": {checkNames, files{"gateway/util/x.go": "package quota\n"},
			[]string{`gateway/util: the name "util" says nothing about what belongs there: name it after what it does`}},
		"a vague parent": {checkNames, files{"common/quota/x.go": "package quota\n"},
			[]string{`common/quota: the name "common" says nothing about what belongs there: name it after what it does`}},
		"a vague package": {checkNames, files{"gateway/x/x.go": "package types\n"},
			[]string{`gateway/x: the name "types" says nothing about what belongs there: name it after what it does`}},
		"a vague test package": {checkNames, files{"gateway/x/x_test.go": "package helpers_test\n"},
			[]string{`gateway/x: the name "helpers" says nothing about what belongs there: name it after what it does`}},

		"a method named init": {checkInits, files{"a/a.go": "package a\n\ntype T int\n\nfunc (T) init() {}\n"}, nil},
		"an init": {checkInits, files{"a/a.go": "package a\n\nfunc init() {}\n"},
			[]string{"a/a.go:3: init runs whether it is wanted or not: let main, or a constructor, call it"}},
		"an init behind a tag": {checkInits, files{"a/a_test.go": "//go:build never\n\npackage a\n\nfunc init() {}\n"},
			[]string{"a/a_test.go:5: init runs whether it is wanted or not: let main, or a constructor, call it"}},

		"a backend runs the suite":  {checkHarnesses, files{"backends/etcd/store_test.go": suite + "func TestContract(t *testing.T) {}\n"}, nil},
		"a backend runs it nowhere": {checkHarnesses, files{"backends/etcd/store.go": "package etcd\n"}, []string{"backends/etcd: " + noSuite}},
		"a backend runs it under a name that make contract misses": {checkHarnesses,
			files{"backends/etcd/store_test.go": suite + "func TestSuite(t *testing.T) {}\n"}, []string{"backends/etcd: " + noSuite}},
		"the oracle runs it nowhere": {checkHarnesses, files{"contract/memstore/store.go": "package memstore\n"}, []string{"contract/memstore: " + noSuite}},
		"a backend's subfolder":      {checkHarnesses, files{"backends/etcd/codec/codec.go": "package codec\n"}, nil},

		"a test that exists": {checkNamedTests, files{
			"docs/a.md":   "see `TestKey_ID`, `FuzzKey/x`, `Test…` and `-run Test`\n",
			"a/a_test.go": "package a\n\nfunc TestKey_ID() {}\n\nfunc FuzzKey() {}\n",
		}, nil},
		"a test that was renamed": {checkNamedTests, files{
			"docs/a.md":   "one\n| `TestKey_ID` | `TestOld/row` |\n",
			"a/a_test.go": "package a\n\nfunc TestKey_ID() {}\n",
			"a/a.go":      "package a\n\nfunc TestOld() {}\n",
		}, []string{"docs/a.md:2: TestOld is named as a test and does not exist"}},

		"text that stands alone": {texts, files{"README.md": "see ../docs, shared/ and /var/lib/leased\n"}, nil},
		"a folder outside": {texts, files{"README.md": "one\nsee .." + "/shared/design\n"},
			[]string{`README.md:2: "../` + `shared": names a folder outside the repository`}},
		"a tool of one machine": {texts, files{"a/testdata/x.json": "{\"x\": \"/opt/." + "library/x\"}\n"},
			[]string{`a/testdata/x.json:1: "/.` + `library": names a tool of one machine`}},
		"a checkout": {texts, files{"a/a.go": "package a\n\n// See /checkouts/of-one-person/a.\n"},
			[]string{`a/a.go:3: "/checkouts/of-one-person": names the place of one checkout`}},
		"a container's root": {func(tr *tree) []violation { return checkTexts(tr, "/src") },
			files{"Dockerfile": "WORKDIR /src\n"}, nil},
		"a person's folder": {texts, files{".ci/run": "cd /ho" + "me/me\ncd /ro" + "ot/go\n"},
			[]string{`.ci/run:1: "/ho` + `me/m": names a folder of one person's machine`, `.ci/run:2: "/ro` + `ot/": names a folder of one person's machine`}},
		"a registry": {texts, files{"Makefile": "GOPROXY=https://proxy" + ".golang.org\n"},
			[]string{`Makefile:1: "proxy` + `.golang.org": names a package registry; the machine is set up with its own`}},
		"a binary is not read": {texts, files{"x.png": "\x00.." + "/shared"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, lines(test.check(test.files.tree(t)))); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}
