package clustertest

import (
	"testing"

	"go.uber.org/goleak"

	"leased/test/proc"
)

func TestMain(m *testing.M) {
	proc.AtOnce(8)
	goleak.VerifyTestMain(m)
}
