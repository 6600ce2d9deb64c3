package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// TestHalfDone: what ended a change of which a step was made is told, and not as
// something that says that nothing was changed.
func TestHalfDone(t *testing.T) {
	for _, err := range []error{raft.ErrNotLeader, ErrNoMember, ErrUnreachable, ErrClosed} {
		got := halfDone("n4", err)
		if errors.Is(got, err) || statusOf(got) != 409 || !strings.Contains(got.Error(), err.Error()) || !strings.Contains(got.Error(), "was added") {
			t.Errorf("%v became %v", err, got)
		}
	}
}
