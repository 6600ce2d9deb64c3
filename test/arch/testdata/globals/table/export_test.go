package table

import "flag"

// Go's way of lending a function to the external tests, and of adding a flag.
var Read = read

var update = flag.Bool("update", false, "write golden files")

var Shared = 1 // want "Shared is exported, so that any importer can change it: make it a function that returns a new value"

var runs int

func inTest() {
	runs++         // want "runs is assigned to: it is a package-level variable, shared by all that runs in this process"
	*update = true // want "update is assigned to: it is a package-level variable, shared by all that runs in this process"
}
