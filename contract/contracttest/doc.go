// Package contracttest holds every backend to the law that package contract
// writes down: one rule for each sentence that can be checked at the Store. A
// backend that passes all of them may serve a namespace; there is no rule that
// only some backends have to pass and none that may be skipped.
//
// # A new backend
//
// Write a [Harness] for it and call [Run] from a test whose name begins with
// TestContract:
//
//	func TestContract(t *testing.T) {
//		contracttest.Run(t, func(t *testing.T) *contracttest.Harness {
//			server := startServer(t) // on a free port, stopped by t.Cleanup
//			return &contracttest.Harness{
//				Name:       "mybackend",
//				Open:       func(t contracttest.TB) contract.Store { … },
//				Kill:       func(t contracttest.TB, s contract.Store) { … },
//				Reopen:     func(t contracttest.TB) { … },
//				Advance:    contracttest.AdvanceRealTime,
//				Guarantees: mybackend.Guarantees(),
//			}
//		})
//	}
//
// Each rule gets a harness of its own from that function and a namespace that
// nobody else uses, and all run in parallel, those of several deployments in one
// package too; but the rules that users were promised a time in ([Rule].Timed) run
// alone. Rules that do not restart the
// backing store ([Rule].Reopens) may share one server if starting one is slow:
// hand out harnesses on the same server for them. A harness whose clock is set
// by Advance is never shared, because one rule's hour would pass for all.
//
// When a rule fails its sentence is printed: it is the law that was broken, and
// the lines above it say what was seen. [RunRule] runs one rule outside
// go test, for the command line and for the test of the suite itself, which
// has stores that are wrong in one way each and asks whether the rule that is
// named for it notices.
//
// # Time
//
// A backend's clock is moved by Harness.Advance and may also run by itself.
// Rules never compare it with this machine's clock except as a bound: what
// passed on the backend's clock is at least what was advanced, and at most that
// plus what passed here beside it. How late a lease may end and how TTLs are
// rounded comes from Guarantees alone, and instants are compared to the
// millisecond that contract.Lease promises; there are no other tolerances.
//
// Waits and deadlines, and the bounds on answering them (contract.AnswerSlack,
// 2 s for the next waiter), are the caller's and so always real time. From a
// bound that was missed only the time is taken off in which the machine did not
// run this process at all, which a timer beside each rule measures. Those of a fifth
// of a second are held by the timed rules; the others have ten times as much.
//
// # What this package must not know
//
// It knows package contract and no store: a rule that asks which backend it
// runs on would be a law of that backend only.
//
// # Invariants
//
//   - One rule is one function, with one sentence. IDs never change: a store's
//     known defects are written down under them.
//   - A rule can fail; each one has been seen to.
//   - A rule that waits for something waits at most half a minute: a slow
//     machine is not a broken store, but a hang is.
package contracttest
