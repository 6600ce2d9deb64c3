package cluster

import (
	"testing"

	"leased/test/proc"
)

func TestMain(m *testing.M) {
	proc.AtOnce(3)
	m.Run()
}
