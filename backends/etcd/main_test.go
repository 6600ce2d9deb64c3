package etcd_test

import (
	"testing"

	"leased/test/proc"
)

func TestMain(m *testing.M) {
	proc.AtOnce(7)
	m.Run()
}
