package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// globals looks for package-level variables that can change: in one package at a
// time, because a variable that others can reach is one already.
type globals struct {
	tree *tree
	pkg  *typed
	bad  []violation
}

// checkGlobals reports each package-level variable that can change after the
// program has started, and each write to one, another package's included.
//
// What remains is a constant that Go has no syntax for: an error, a compiled
// pattern, embedded files, a lookup table that is never written to.
func checkGlobals(tr *tree, pkgs []*typed) []violation {
	var bad []violation
	for _, p := range pkgs {
		g := &globals{tree: tr, pkg: p}
		for _, file := range p.files {
			for _, decl := range file.Decls {
				if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.VAR {
					g.checkDeclaration(d)
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				g.checkUse(n)
				return true
			})
		}
		bad = append(bad, g.bad...)
	}
	return bad
}

func (g *globals) reportf(pos token.Pos, format string, args ...any) {
	g.bad = append(g.bad, violation{g.tree.at(pos), fmt.Sprintf(format, args...)})
}

// checkDeclaration judges what a variable is, whatever is done with it.
func (g *globals) checkDeclaration(d *ast.GenDecl) {
	inTest := strings.HasSuffix(g.tree.fset.Position(d.Pos()).Filename, "_test.go")
	for _, spec := range d.Specs {
		spec, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, name := range spec.Names {
			v, ok := g.pkg.info.Defs[name].(*types.Var)
			if !ok || name.Name == "_" {
				continue // var _ Interface = Type{} declares nothing
			}
			_, isFunc := v.Type().Underlying().(*types.Signature)
			switch {
			case inTest && i < len(spec.Values) && g.isFlag(spec.Values[i]):
				// flag.Bool("update", …): go test offers no other way.
			case v.Exported() && inTest && isFunc:
				// export_test.go lends a function to the external tests.
			case v.Exported() && !isError(v.Type()):
				g.reportf(name.Pos(), "%s is exported, so that any importer can change it: make it a function that returns a new value", name.Name)
			default:
				if why := changeable(v.Type(), false, nil); why != "" {
					g.reportf(name.Pos(), "%s is %s: a second server in this process would share it; put it into a struct that is passed on", name.Name, why)
				}
			}
		}
	}
}

// isFlag recognises the definition of a command-line flag.
func (g *globals) isFlag(value ast.Expr) bool {
	call, ok := ast.Unparen(value).(*ast.CallExpr)
	if !ok {
		return false
	}
	f := calledFunc(g.pkg.info, call)
	return f != nil && f.Pkg() != nil && f.Pkg().Path() == "flag"
}

func isError(t types.Type) bool {
	errorType, ok := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	return ok && types.Implements(t, errorType)
}

// unchanging lists types that are pointers or interfaces and still never change.
func unchanging() []string {
	return []string{
		"encoding/base32.Encoding",
		"encoding/base64.Encoding",
		"github.com/fxamacker/cbor/v2.DecMode",
		"github.com/fxamacker/cbor/v2.EncMode",
		"github.com/go-json-experiment/json/internal/jsonopts.Options",
		"golang.org/x/net/idna.Profile",
		"hash/crc32.Table",
		"hash/crc64.Table",
		"html/template.Template",
		"reflect.Type",
		"regexp.Regexp",
		"strings.Replacer",
		"text/template.Template",
		"time.Location",
		"unicode.RangeTable",
	}
}

// changeable says what makes a value of type t change without a write to the
// variable, or "". In a table an interface is a choice among behaviours; by
// itself it is how a singleton looks.
func changeable(t types.Type, inTable bool, seen []types.Type) string {
	if slices.Contains(seen, t) {
		return ""
	}
	seen = append(seen, t)
	if named, ok := types.Unalias(t).(*types.Named); ok {
		name := typeName(named)
		switch {
		case slices.Contains(unchanging(), name) || isError(t):
			return ""
		case strings.HasPrefix(name, "sync.") || strings.HasPrefix(name, "sync/atomic."):
			return "a " + name + ", which exists to change"
		}
		if _, isStruct := named.Underlying().(*types.Struct); isStruct && !within(strings.SplitN(name, ".", 2)[0], modulePath) {
			return "" // another module's value: its methods are looked at where they are called
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		if named, ok := types.Unalias(u.Elem()).(*types.Named); ok && slices.Contains(unchanging(), typeName(named)) {
			return ""
		}
		return "a pointer, whose target can change"
	case *types.Chan:
		return "a channel"
	case *types.Interface:
		if !inTable {
			return "an interface value, which can hide anything"
		}
	case *types.Map:
		return changeable(u.Elem(), true, seen)
	case *types.Slice:
		return changeable(u.Elem(), true, seen)
	case *types.Array:
		return changeable(u.Elem(), true, seen)
	case *types.Struct:
		for f := range u.Fields() {
			// A pointer in a field is judged where it is written through.
			if _, isPointer := f.Type().Underlying().(*types.Pointer); isPointer {
				continue
			}
			if why := changeable(f.Type(), true, seen); why != "" {
				return why
			}
		}
	}
	return ""
}

func typeName(named *types.Named) string {
	o := named.Obj()
	if o.Pkg() == nil {
		return o.Name()
	}
	return o.Pkg().Path() + "." + o.Name()
}

func TestGlobals(t *testing.T) {
	root, tr := repository(t)
	pkgs, err := typeCheck(t.Context(), root, tr)
	if err != nil {
		t.Fatalf("the module does not type-check: %v", err)
	}
	report(t, checkGlobals(tr, pkgs))
	report(t, checkSeen(root, tr, pkgs))
}
