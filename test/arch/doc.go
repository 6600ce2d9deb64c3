// Package arch holds the rules of this repository that no compiler checks, as
// tests that fail with the reason:
//
//   - an import arrow is broken: each folder has a row that says what it may
//     know, and a folder without a row is an error too (arrows_test.go);
//   - a package has no doc.go, has an init function, or has a name that says
//     nothing; a backend does not run the contract suite; a file depends on the
//     machine it was written on (layout_test.go);
//   - a package-level variable can change (globals_test.go).
//
// It must not know what the packages do: it reads their source and never calls
// them. It is made of test files only, so that nothing can import it.
//
// Invariants: every rule has a test in which it fires, because a rule that
// cannot fail protects nothing; and every Go file of the module is looked at,
// whatever its build tags.
package arch
