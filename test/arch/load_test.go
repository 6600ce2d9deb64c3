package arch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modulePath is the module that the rules are about, in fixtures as in the
// repository.
const modulePath = "leased"

// buildTags are the tags that hide files from a plain build. A file behind any
// other tag would escape the checks that need types, so that it is an error
// (checkSeen).
const buildTags = "bench,chaos"

// violation is one place that breaks one rule.
type violation struct {
	where string // file:line, a file, or a folder, from the root of the module
	what  string // which rule, and why it is one
}

func (v violation) String() string { return v.where + ": " + v.what }

// source is one Go file of the module.
type source struct {
	path    string // from the root of the module, with slashes
	test    bool
	syntax  *ast.File
	imports []imported
}

type imported struct {
	path  string
	where string
}

// pkg is one folder with Go files.
type pkg struct {
	path    string // from the root of the module; "." for the root itself
	name    string // without the _test of an external test package
	sources []source
}

// text is one file that is not binary, Go or not.
type text struct {
	path    string
	content []byte
}

// tree is a module as it lies on disk. Files are parsed whatever their build
// tags and platform say, and they are read by this process: go test reuses a
// cached result unless a file that the test itself opened has changed, and what
// a child process (go list) opens does not count.
type tree struct {
	fset     *token.FileSet
	packages []*pkg
	texts    []text
}

// readTree reads the module rooted at fsys. A folder with a go.mod of its own is
// another module: its text is read, its packages are not.
func readTree(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	byPath := make(map[string]*pkg)
	var foreign []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && skipFolder(name) {
				return fs.SkipDir
			}
			if _, err := fs.Stat(fsys, path.Join(name, "go.mod")); err == nil && name != "." {
				foreign = append(foreign, name+"/")
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := fs.ReadFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an editor's temporary file, gone since the listing
		}
		if err != nil {
			return err
		}
		// git and grep call a file binary by the same sign.
		if !bytes.Contains(content[:min(len(content), 8000)], []byte{0}) {
			t.texts = append(t.texts, text{name, content})
		}
		if isSource(name) && !underAny(name, foreign) {
			return t.addSource(byPath, name, content)
		}
		return nil
	})
	for _, p := range byPath {
		t.packages = append(t.packages, p)
	}
	slices.SortFunc(t.packages, func(a, b *pkg) int { return strings.Compare(a.path, b.path) })
	return t, err
}

// skipFolder names what is not part of the repository.
func skipFolder(name string) bool {
	switch path.Base(name) {
	case ".git", "leased-data":
		return true
	}
	return name == "bin"
}

// isSource tells whether the go command would take the file for one of a
// package: it passes over testdata and names that start with "." or "_".
func isSource(name string) bool {
	if path.Ext(name) != ".go" {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "testdata" || strings.HasPrefix(part, ".") || strings.HasPrefix(part, "_") {
			return false
		}
	}
	return true
}

func underAny(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return strings.HasPrefix(name, f) })
}

func (t *tree) addSource(byPath map[string]*pkg, name string, content []byte) error {
	syntax, err := parser.ParseFile(t.fset, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	s := source{path: name, test: strings.HasSuffix(name, "_test.go"), syntax: syntax}
	for _, spec := range syntax.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		s.imports = append(s.imports, imported{importPath, t.at(spec.Pos())})
	}
	folder := path.Dir(name)
	p := byPath[folder]
	if p == nil {
		p = &pkg{path: folder}
		byPath[folder] = p
	}
	p.name = syntax.Name.Name
	if s.test {
		p.name = strings.TrimSuffix(p.name, "_test")
	}
	p.sources = append(p.sources, s)
	return nil
}

// at gives a position as "file:line"; a column would only make the wanted
// results of the rules' own tests brittle.
func (t *tree) at(pos token.Pos) string {
	p := t.fset.Position(pos)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// repository reads the module this test is part of.
func repository(t *testing.T) (root string, tr *tree) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root = filepath.Dir(filepath.Dir(dir))
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("the root of the module is not two folders up: %v", err)
	}
	tr, err = readTree(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.packages) == 0 {
		t.Fatalf("no packages found under %s", root)
	}
	return root, tr
}

// listed is a package as go list prints it.
type listed struct {
	ImportPath string
	ForTest    string   // the package that this variant is compiled to test
	Export     string   // the file with its compiled form
	GoFiles    []string // names in Dir, test files included in a variant for tests
	Dir        string
	Imports    []string
	ImportMap  map[string]string // import as written -> ImportPath of the variant meant
	Standard   bool
	Error      *struct{ Err string }
}

func goList(ctx context.Context, root string, args ...string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-tags", buildTags}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.Bytes())
	}
	var packages []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// importGraph maps the import path of every package that the module needs, its
// own and other people's, to what its production code imports.
type importGraph map[string][]string

// dependencies asks the go command for the graph of what others wrote, and takes
// the module's own arrows from its parsed files, so that the arrow in a file for
// another platform counts too.
func dependencies(ctx context.Context, root string, tr *tree) (importGraph, error) {
	packages, err := goList(ctx, root, "-deps", "-json=ImportPath,Imports,Standard", "./...")
	if err != nil {
		return nil, err
	}
	graph := make(importGraph)
	for _, p := range packages {
		// The standard library imports nothing but itself.
		if !p.Standard {
			graph[p.ImportPath] = p.Imports
		}
	}
	graph.addOwn(tr)
	return graph, nil
}

func (g importGraph) addOwn(tr *tree) {
	for _, p := range tr.packages {
		from := path.Join(modulePath, p.path)
		g[from] = nil
		for _, s := range p.sources {
			for _, imp := range s.imports {
				if !s.test && !slices.Contains(g[from], imp.path) {
					g[from] = append(g[from], imp.path)
				}
			}
		}
	}
}

// chain returns the shortest way from one package to the first for which stop
// is true, both included, or nil.
func (g importGraph) chain(from string, stop func(importPath string) bool) []string {
	cameFrom := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		here := queue[0]
		if here != from && stop(here) {
			var way []string
			for p := here; p != ""; p = cameFrom[p] {
				way = append(way, p)
			}
			slices.Reverse(way)
			return way
		}
		for _, next := range g[here] {
			if _, seen := cameFrom[next]; !seen {
				cameFrom[next] = here
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// report fails the test once for each violation.
func report(t *testing.T, violations []violation) {
	t.Helper()
	for _, v := range violations {
		t.Error(v)
	}
}
