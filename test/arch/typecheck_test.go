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
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// typed is one package after type-checking.
type typed struct {
	sources map[string]bool // the paths of its files, from the root of the module
	files   []*ast.File
	types   *types.Package
	info    *types.Info
}

// typeCheck checks every package of the module at root, test files included,
// against the compiled form of what it imports; go list compiles it where
// needed. The files are those of tr, so that positions and what a package
// consists of are the same in all checks.
func typeCheck(ctx context.Context, root string, tr *tree) ([]*typed, error) {
	all, err := goList(ctx, root, "-deps", "-export", "-test",
		"-json=ImportPath,ForTest,Export,GoFiles,Dir,ImportMap,Standard,Error", "./...")
	if err != nil {
		return nil, err
	}
	compiled := make(map[string]string)
	hasTests := make(map[string]bool)
	for _, p := range all {
		compiled[p.ImportPath] = p.Export
		if plain, _, ok := strings.Cut(p.ImportPath, " ["); ok && plain == p.ForTest {
			hasTests[plain] = true
		}
	}
	sources := make(map[string]*ast.File)
	for _, p := range tr.packages {
		for _, s := range p.sources {
			sources[s.path] = s.syntax
		}
	}
	var pkgs []*typed
	var broken []error
	for _, p := range all {
		plain, _, variant := strings.Cut(p.ImportPath, " [")
		switch {
		case p.Standard || !within(plain, modulePath) || strings.HasSuffix(plain, ".test"):
			continue // the test's main package is generated
		case !variant && hasTests[plain]:
			continue // comes again, with its test files
		case variant && plain != p.ForTest && plain != p.ForTest+"_test":
			continue // recompiled for the test of another package
		case p.Error != nil:
			broken = append(broken, fmt.Errorf("%s: %s", p.ImportPath, p.Error.Err))
			continue
		}
		checked, err := check(root, tr, p, plain, sources, compiled)
		if err != nil {
			broken = append(broken, err)
		}
		pkgs = append(pkgs, checked)
	}
	return pkgs, errors.Join(broken...)
}

// check type-checks one package.
func check(root string, tr *tree, p listed, plain string, sources map[string]*ast.File, compiled map[string]string) (*typed, error) {
	out := &typed{sources: make(map[string]bool), info: &types.Info{
		Defs:       make(map[*ast.Ident]types.Object),
		Selections: make(map[*ast.SelectorExpr]*types.Selection),
		Types:      make(map[ast.Expr]types.TypeAndValue),
		Uses:       make(map[*ast.Ident]types.Object),
	}}
	var broken []error
	for _, name := range p.GoFiles {
		rel, err := filepath.Rel(root, filepath.Join(p.Dir, name))
		if err != nil {
			return out, err
		}
		rel = filepath.ToSlash(rel)
		syntax, ok := sources[rel]
		if !ok {
			return out, fmt.Errorf("%s: %s is listed by the go command and was not read", p.ImportPath, rel)
		}
		out.sources[rel] = true
		out.files = append(out.files, syntax)
	}
	config := types.Config{
		Importer: importer.ForCompiler(tr.fset, "gc", func(imported string) (io.ReadCloser, error) {
			if meant, ok := p.ImportMap[imported]; ok {
				imported = meant
			}
			name := compiled[imported]
			if name == "" {
				return nil, fmt.Errorf("%s was not compiled", imported)
			}
			return os.Open(name)
		}),
		Sizes: types.SizesFor("gc", runtime.GOARCH),
		Error: func(err error) { broken = append(broken, err) },
	}
	// The first error comes back too; Error has it already.
	out.types, _ = config.Check(plain, tr.fset, out.files, out.info)
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
