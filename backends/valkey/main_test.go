package valkey_test

import (
	"testing"

	"leased/test/proc"
)

func TestMain(m *testing.M) {
	proc.AtOnce(8)
	m.Run()
}
