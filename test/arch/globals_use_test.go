package arch

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// checkUse judges what is done with a package-level variable at one node of the
// syntax. It follows no value through local variables and calls: it forbids the
// places where a value would get away instead.
func (g *globals) checkUse(n ast.Node) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			for _, left := range n.Lhs {
				g.written(left, "is assigned to")
			}
		}
		for _, right := range n.Rhs {
			g.handedOut(right)
		}
	case *ast.IncDecStmt:
		g.written(n.X, "is assigned to")
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			g.written(n.Key, "is assigned to")
			g.written(n.Value, "is assigned to")
		}
	case *ast.SendStmt:
		g.written(n.Chan, "is sent to")
		g.handedOut(n.Value)
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			g.writtenHere(n.X, "has its address taken")
		}
	case *ast.SliceExpr:
		// Slicing an array takes its address too.
		if _, isArray := g.typeOf(n.X).Underlying().(*types.Array); isArray {
			g.writtenHere(n.X, "has its address taken")
		}
	case *ast.SelectorExpr:
		g.checkMethod(n)
	case *ast.CallExpr:
		g.checkCall(n)
	case *ast.ReturnStmt:
		for _, result := range n.Results {
			g.handedOut(result)
		}
	case *ast.CompositeLit:
		for _, element := range n.Elts {
			if kv, ok := element.(*ast.KeyValueExpr); ok {
				element = kv.Value
			}
			g.handedOut(element)
		}
	}
}

// written reports a write to a package-level variable or to what it holds,
// whichever package declares it.
func (g *globals) written(e ast.Expr, how string) {
	if v := g.global(e); v != nil {
		g.reportf(e.Pos(), "%s %s: it is a package-level variable, shared by all that runs in this process", g.name(v), how)
	}
}

// writtenHere is written for uses that other people's variables are made for:
// http.DefaultTransport.(*http.Transport) and the like are theirs to guard.
func (g *globals) writtenHere(e ast.Expr, how string) {
	if v := g.global(e); v != nil && within(v.Pkg().Path(), modulePath) {
		g.written(e, how)
	}
}

// handedOut reports a table that leaves by reference: whoever gets it can write
// to it. Calls are trusted to read only; those that write are in checkCall.
func (g *globals) handedOut(e ast.Expr) {
	e = ast.Unparen(e)
	if slice, ok := e.(*ast.SliceExpr); ok {
		e = ast.Unparen(slice.X)
	}
	switch e.(type) {
	case *ast.Ident, *ast.SelectorExpr:
	default:
		return // an element of the table, or a call's result
	}
	v := g.global(e)
	if v == nil || !within(v.Pkg().Path(), modulePath) {
		return
	}
	switch g.typeOf(e).Underlying().(type) {
	case *types.Map, *types.Slice:
		g.reportf(e.Pos(), "%s is handed out by reference: clone it, or look up here what is wanted", g.name(v))
	}
}

// checkMethod reports a method that may change the variable it is called on:
// x.M() is (&x).M() when M has a pointer receiver.
func (g *globals) checkMethod(sel *ast.SelectorExpr) {
	selection := g.pkg.info.Selections[sel]
	if selection == nil || selection.Kind() == types.FieldVal {
		return
	}
	f, ok := selection.Obj().(*types.Func)
	if !ok || f.Signature().Recv() == nil {
		return
	}
	_, byPointer := f.Signature().Recv().Type().(*types.Pointer)
	_, isPointer := g.typeOf(sel.X).Underlying().(*types.Pointer)
	if byPointer && !isPointer {
		g.writtenHere(sel.X, "has its address taken by method "+f.Name())
	}
}

// checkCall reports functions that write to their first argument.
func (g *globals) checkCall(call *ast.CallExpr) {
	if len(call.Args) == 0 {
		return
	}
	if id, ok := ast.Unparen(call.Fun).(*ast.Ident); ok {
		if builtin, ok := g.pkg.info.Uses[id].(*types.Builtin); ok {
			switch builtin.Name() {
			case "clear", "close", "copy", "delete":
				g.written(call.Args[0], "is changed by "+builtin.Name())
			case "append":
				// Only a slice of the variable has room that is somebody else's.
				if slice, ok := ast.Unparen(call.Args[0]).(*ast.SliceExpr); ok {
					g.written(slice.X, "is changed by append")
				}
			}
			return
		}
	}
	f := calledFunc(g.pkg.info, call)
	if f == nil || f.Pkg() == nil {
		return
	}
	if slices.Contains(writers()[f.Pkg().Path()], f.Name()) {
		g.written(call.Args[0], "is changed by "+f.Pkg().Name()+"."+f.Name())
	}
}

// writers lists the functions of the standard library that write to the slice or
// map they get first.
func writers() map[string][]string {
	return map[string][]string{
		"maps": {"Copy", "DeleteFunc", "Insert"},
		"slices": {"Compact", "CompactFunc", "Delete", "DeleteFunc", "Insert", "Replace",
			"Reverse", "Sort", "SortFunc", "SortStableFunc"},
		"sort": {"Float64s", "Ints", "Slice", "SliceStable", "Sort", "Stable", "Strings"},
	}
}

// global returns the package-level variable that a write to e would change, or
// nil. In a[i].f that is a; a call in between ends the search, its result is
// judged where it is made.
func (g *globals) global(e ast.Expr) *types.Var {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.TypeAssertExpr:
			e = x.X
		case *ast.SelectorExpr:
			if v := g.packageLevel(x.Sel); v != nil {
				return v // otherpackage.Variable
			}
			e = x.X
		case *ast.Ident:
			return g.packageLevel(x)
		default:
			return nil
		}
	}
}

func (g *globals) packageLevel(id *ast.Ident) *types.Var {
	v, ok := g.pkg.info.Uses[id].(*types.Var)
	if !ok || v.IsField() || v.Pkg() == nil || v.Parent() != v.Pkg().Scope() {
		return nil
	}
	return v
}

// typeOf returns the type of e, never nil.
func (g *globals) typeOf(e ast.Expr) types.Type {
	if t := g.pkg.info.TypeOf(e); t != nil {
		return t
	}
	return types.Typ[types.Invalid]
}

// calledFunc returns the function or method that a call names, or nil.
func calledFunc(info *types.Info, call *ast.CallExpr) *types.Func {
	fun := ast.Unparen(call.Fun)
	if index, ok := fun.(*ast.IndexExpr); ok {
		fun = ast.Unparen(index.X) // type arguments
	}
	var id *ast.Ident
	switch fun := fun.(type) {
	case *ast.Ident:
		id = fun
	case *ast.SelectorExpr:
		id = fun.Sel
	default:
		return nil
	}
	f, _ := info.Uses[id].(*types.Func)
	return f
}

// name is how code in the package spells the variable.
func (g *globals) name(v *types.Var) string {
	if v.Pkg().Path() == g.pkg.types.Path() {
		return v.Name()
	}
	return v.Pkg().Name() + "." + v.Name()
}
