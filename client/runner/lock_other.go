//go:build !unix || aix || solaris

package runner

import (
	"errors"
	"fmt"
	"os"
)

// lock refuses to go on: two runners on a folder would start each job twice.
func lock(string) (*os.File, error) {
	return nil, fmt.Errorf("lock: %w on this system", errors.ErrUnsupported)
}

func unlock(f *os.File) error { return f.Close() }
