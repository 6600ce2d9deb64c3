package arch

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/types"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// typed is one package after type-checking.
type typed struct {
	sources map[string]bool // the paths of its files, from the root of the module
	files   []*ast.File
	types   *types.Package
	info    *types.Info
}

// typeCheck checks every package of the module at root, test files included. The
// files are those of tr, so that positions and what a package consists of are the
// same in all checks.
//
// The module's own packages are checked from source, each against the others as
// they were checked: to have them compiled first costs three times as much, since
// nobody else needs most of them in that form. What others wrote go list compiles
// where needed, and it is read once.
func typeCheck(ctx context.Context, root string, tr *tree) ([]*typed, error) {
	all, err := goList(ctx, root, "-deps", "-test",
		"-json=ImportPath,ForTest,GoFiles,Dir,Imports,ImportMap,Standard,Error", "./...")
	if err != nil {
		return nil, err
	}
	var own []listed
	hasTests := make(map[string]bool)
	for _, p := range all {
		plain, _, variant := strings.Cut(p.ImportPath, " [")
		if p.Standard || !within(plain, modulePath) || strings.HasSuffix(plain, ".test") {
			continue // the test's main package is generated
		}
		own = append(own, p)
		if variant && plain == p.ForTest {
			hasTests[plain] = true
		}
	}
	c := &checker{root: root, tr: tr, sources: make(map[string]*ast.File), own: make(map[string]*types.Package)}
	for _, p := range tr.packages {
		for _, s := range p.sources {
			c.sources[s.path] = s.syntax
		}
	}
	if err := c.readOthers(ctx, own); err != nil {
		return nil, err
	}
	var pkgs []*typed
	var broken []error
	for _, p := range own { // what a package imports is listed before it
		plain, _, variant := strings.Cut(p.ImportPath, " [")
		if p.Error != nil {
			broken = append(broken, fmt.Errorf("%s: %s", p.ImportPath, p.Error.Err))
			continue
		}
		// One that comes again with its test files, or was listed once more for the
		// test of another package, is only for others to import.
		again := !variant && hasTests[plain] || variant && plain != p.ForTest && plain != p.ForTest+"_test"
		checked, err := c.check(p, plain, again)
		if again {
			continue
		}
		if err != nil {
			broken = append(broken, err)
		}
		pkgs = append(pkgs, checked)
	}
	return pkgs, errors.Join(broken...)
}

// checker type-checks the packages of a module one after the other.
type checker struct {
	root    string
	tr      *tree
	sources map[string]*ast.File
	own     map[string]*types.Package // what was checked, by ImportPath
	others  types.Importer
}

// readOthers finds the compiled form of what the packages import of others.
func (c *checker) readOthers(ctx context.Context, own []listed) error {
	isOwn, wanted := make(map[string]bool), make(map[string]bool)
	for _, p := range own {
		isOwn[p.ImportPath] = true
	}
	for _, p := range own {
		for _, imported := range p.Imports {
			if !isOwn[imported] && imported != "unsafe" && imported != "C" {
				wanted[imported] = true
			}
		}
	}
	compiled := make(map[string]string)
	if len(wanted) > 0 { // with no names go list takes the package of the folder
		others, err := goList(ctx, c.root, append([]string{"-export", "-json=ImportPath,Export"}, slices.Sorted(maps.Keys(wanted))...)...)
		if err != nil {
			return err
		}
		for _, p := range others {
			compiled[p.ImportPath] = p.Export
		}
	}
	c.others = importer.ForCompiler(c.tr.fset, "gc", func(imported string) (io.ReadCloser, error) {
		name := compiled[imported]
		if name == "" {
			return nil, fmt.Errorf("%s was not compiled", imported)
		}
		return os.Open(name)
	})
	return nil
}

// importFor resolves an import as one package means it.
type importFor struct {
	*checker
	importMap map[string]string
}

// Import implements types.Importer.
func (i importFor) Import(imported string) (*types.Package, error) {
	if meant, ok := i.importMap[imported]; ok {
		imported = meant
	}
	if p := i.own[imported]; p != nil {
		return p, nil
	}
	return i.others.Import(imported)
}

// check type-checks one package. outside leaves out what importers do not see.
func (c *checker) check(p listed, plain string, outside bool) (*typed, error) {
	out := &typed{sources: make(map[string]bool), info: &types.Info{
		Defs:       make(map[*ast.Ident]types.Object),
		Selections: make(map[*ast.SelectorExpr]*types.Selection),
		Types:      make(map[ast.Expr]types.TypeAndValue),
		Uses:       make(map[*ast.Ident]types.Object),
	}}
	var broken []error
	for _, name := range p.GoFiles {
		rel, err := filepath.Rel(c.root, filepath.Join(p.Dir, name))
		if err != nil {
			return out, err
		}
		rel = filepath.ToSlash(rel)
		syntax, ok := c.sources[rel]
		if !ok {
			return out, fmt.Errorf("%s: %s is listed by the go command and was not read", p.ImportPath, rel)
		}
		out.sources[rel] = true
		out.files = append(out.files, syntax)
	}
	config := types.Config{
		Importer:         importFor{c, p.ImportMap},
		IgnoreFuncBodies: outside,
		Sizes:            types.SizesFor("gc", runtime.GOARCH),
		Error:            func(err error) { broken = append(broken, err) },
	}
	// The first error comes back too; Error has it already.
	out.types, _ = config.Check(plain, c.tr.fset, out.files, out.info)
	c.own[p.ImportPath] = out.types
	return out, errors.Join(broken...)
}

// checkSeen reports files that were not type-checked and would be on no other
// platform either: checkGlobals has said nothing about them.
func checkSeen(root string, tr *tree, pkgs []*typed) []violation {
	seen := make(map[string]bool)
	for _, p := range pkgs {
		for name := range p.sources {
			seen[name] = true
		}
	}
	var bad []violation
	for _, p := range tr.packages {
		for _, s := range p.sources {
			if !seen[s.path] && !forAnotherPlatform(root, s.path) {
				bad = append(bad, violation{s.path, "no check that needs types sees this file: add its build tag to buildTags in test/arch/load_test.go"})
			}
		}
	}
	return bad
}

func forAnotherPlatform(root, name string) bool {
	ctx := build.Default
	ctx.BuildTags = strings.Split(buildTags, ",")
	for _, goos := range []string{"darwin", "freebsd", "linux", "windows"} {
		for _, goarch := range []string{"386", "amd64", "arm64"} {
			if goos == runtime.GOOS && goarch == runtime.GOARCH {
				continue
			}
			ctx.GOOS, ctx.GOARCH = goos, goarch
			if ok, err := ctx.MatchFile(filepath.Join(root, path.Dir(name)), path.Base(name)); err == nil && ok {
				return true
			}
		}
	}
	return false
}
