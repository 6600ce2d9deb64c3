// Package prove runs lease services of every kind under load while things happen to
// them, and has package history judge what their clients saw. It then shows that the
// judgement can be negative: services that are wrong in one way each are caught, the store
// in memory as well as each backend with an edit of its source.
//
// Clients are processes of their own that speak HTTP and nothing else. What they do,
// and what is done to the servers and to them, comes from one seed, which each test
// prints. It does not make a run again, since the machine has a say in what meets
// what, but the same things are tried in the same order. SEED and DURATION in the
// environment choose the seed and how long there is load; without them the seed is
// always the same. What was seen (calls.jsonl,
// the server's events.jsonl, writes.jsonl, faults.jsonl, the servers' logs, and
// timeline.html, which shows all of it) is kept when a test fails, and always with
// go test -artifacts; `make chaos` says so, and where.
//
// It knows no store: what a deployment promises stands in this package as it does in
// docs/guarantees.md.
package prove
