package fleet

import (
	"testing"

	"leased/test/proc"
)

func TestMain(m *testing.M) {
	proc.AtOnce(5)
	m.Run()
}
