package cluster

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childDir, when set in the environment, makes the test binary a node that is
// killed, see kill_test.go.
const childDir = "LEASED_CLUSTER_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Fprintln(os.Stderr, child(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
