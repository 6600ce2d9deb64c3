package memstore_test

import (
	"testing"
	"time"

	"leased/contract"
	"leased/contract/contracttest"
	"leased/contract/memstore"
)

func TestContract(t *testing.T) {
	contracttest.Run(t, func(*testing.T) *contracttest.Harness {
		b := memstore.New(memstore.Options{})
		return &contracttest.Harness{
			Name:       "memstore",
			Open:       func(contracttest.TB) contract.Store { return b.Open() },
			Kill:       func(_ contracttest.TB, s contract.Store) { s.(*memstore.Store).Kill() },
			Reopen:     func(contracttest.TB) { b.Restart() },
			Advance:    func(_ contracttest.TB, d time.Duration) { b.Advance(d) },
			Guarantees: memstore.Guarantees(),
		}
	})
}
