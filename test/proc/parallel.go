package proc

import (
	"flag"
	"strconv"
)

// AtOnce lets so many of a package's tests run at a time, unless -parallel says
// otherwise. TestMain calls it: tests on servers whose clock cannot be moved wait
// more than they compute.
func AtOnce(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // package testing has no such flag any more
	}
}
