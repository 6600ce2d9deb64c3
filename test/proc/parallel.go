package proc

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Main runs a package's tests, so many at a time unless -parallel says
// otherwise: tests on servers whose clock cannot be moved wait more than they
// compute.
func Main(m *testing.M, atOnce int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil {
			panic(err) // package testing has no such flag any more
		}
	}
	os.Exit(m.Run())
}
