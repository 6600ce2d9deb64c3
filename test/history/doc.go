// Package history says whether what clients saw of a lease service could have been
// seen of one that keeps the law.
//
// Clients, each a process of its own, record every call in a file: what they asked
// for, when, what they were told and when. Instants are those of the machine's
// monotonic clock, which all of its processes share. A call without an answer may
// take effect at any time, or never. Check compares the records with each other, with
// the history that the server keeps, and with what a guarded register accepted.
//
// It knows nothing of how the service was run or what was done to it. That a lease
// may end late it is told in Promise; nothing may end early, and nothing else depends
// on time.
//
// The model is not contract/memstore: that one needs the instant of each step on the
// server's clock, which nobody outside knows. This one knows of an instant only that
// it lies between call and answer, and behind that of what came before. A lease may
// have ended by itself as soon as the earliest such instant allows, and need not have,
// however late it is; how late it may be is a rule of its own.
// TestCheck_memstore holds it to memstore: what that answers is accepted.
package history
