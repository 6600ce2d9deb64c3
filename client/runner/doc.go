// Package runner works off jobs that each need a lease, and survives being killed
// at any point: what it was told to do, and what it holds for it, is on disk.
//
//	r, err := runner.Open(runner.Options{Client: c, Dir: "jobs", Instance: "worker-7", Handler: handle})
//	…
//	err = r.Submit(runner.Job{ID: "job-17", Key: key, Payload: payload}) // on disk when it returns
//	…
//	err = r.Run(ctx) // until ctx ends
//
// A handler gets a context that ends before another could have the key, the
// fencing token, and the fence to show to whatever it writes to:
//
//	func handle(ctx context.Context, t *runner.Task) error {
//		…
//		err := sqlFence.Accept(ctx, tx, t.Fence())
//
// # States
//
//	queued ──▶ acquiring ──▶ running ──▶ done      the handler returned nil
//	   ▲           │            │──────▶ failed    it returned an error, panicked or exited;
//	   │  conflict │            │                  or the request for its lease is invalid
//	   └───────────┴────────────┤
//	        the runner stopped  └──────▶ lost      the lease was gone before it returned
//
// A job that is lost is not started again by itself: what it did last may have
// been refused by a fence, and somebody else may have done its work. Forget it, or
// forget it and submit it anew.
//
// # What is on disk, and when
//
// One file for each job, replaced as a whole, checked by a checksum and synced
// before anything goes on that relies on it:
//
//	before the request for the lease   acquiring, with the request id
//	before the handler starts          running, with lease and token
//	before the lease is released       how it ended, or queued again
//
// What cannot be written down does not happen: in particular a lease whose job's end
// could not be is not released. It ends with its TTL, and a restart before that goes
// on with the job.
//
// So a runner that was killed finds out what is true. A job that was acquiring
// repeats the same request, whose answer is the lease that the first one was
// granted. A job that was running goes on if its lease is still held: the handler
// starts again, with the same token, and Task.Runs greater than 1. It is marked
// lost if the lease is gone. A lease that is held for a job which is gone, or has
// ended, is released. If the whole folder is gone, nobody knows what it held:
// those leases end with their TTL.
//
// Leases carry the folder's id in their metadata ("leased-runner"), so that no
// runner releases what the same instance holds otherwise.
//
// # Who is authoritative
//
// The lease service says who holds a key, the folder what there is to do. A lease
// that the folder knows and the service does not is lost.
//
// # What this package must not know
//
// No store, no server framework, no logger: what happens is told to
// Options.Observe. It does not end the process, and does not schedule: jobs begin
// in the order in which they were submitted.
package runner
