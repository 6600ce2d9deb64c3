package runner

import (
	"fmt"
	"time"

	"leased/client"
	"leased/client/guard"
	"leased/gateway/api"
)

const (
	maxID      = 128
	maxPayload = 1 << 20
)

// Job is what there is to do.
type Job struct {
	// ID names the job among those of the runner: 1 to 128 visible ASCII
	// characters. It is the lease's job_id.
	ID string `json:"id"`
	// Key is held while the handler runs.
	Key api.Key `json:"key"`
	// Payload is for the handler; at most 1 MiB.
	Payload []byte `json:"payload"`
}

func (j *Job) check() error {
	if j.ID == "" || len(j.ID) > maxID {
		return fmt.Errorf("runner: the job's id has %d bytes; it must have 1 to %d", len(j.ID), maxID)
	}
	for i := range len(j.ID) {
		if j.ID[i] <= ' ' || j.ID[i] > '~' {
			return fmt.Errorf("runner: the job's id %q has a character that is not visible ASCII", j.ID)
		}
	}
	if len(j.Payload) > maxPayload {
		return fmt.Errorf("runner: job %s: the payload has %d bytes; at most %d are kept", j.ID, len(j.Payload), maxPayload)
	}
	return nil
}

// State is what is to become of a job.
type State string

// The states of a job. Done, Failed and Lost are final: Forget removes the job.
const (
	Queued    State = "queued"    // waits for its turn
	Acquiring State = "acquiring" // asks for its lease
	Running   State = "running"   // its handler runs, or is to be started again
	Done      State = "done"      // the handler returned nil
	Failed    State = "failed"    // the handler returned an error, panicked or exited
	Lost      State = "lost"      // the lease was gone before the handler returned
)

// Final reports whether nothing more becomes of a job.
func (s State) Final() bool { return s == Done || s == Failed || s == Lost }

// Status is a job with what has become of it.
type Status struct {
	Job
	State     State     `json:"state"`
	Submitted time.Time `json:"submitted"`
	// Runs is how often the handler was started.
	Runs int `json:"runs"`
	// RequestID is that of the latest acquire.
	RequestID string `json:"request_id"`
	// LeaseID and Token are those of the lease that the handler ran with last.
	LeaseID string `json:"lease_id"`
	Token   uint64 `json:"token"`
	// Reason says why a job failed or was lost.
	Reason string `json:"reason"`
}

// Task is a job whose lease is held: what a handler gets.
type Task struct {
	runner  *Runner
	entry   *entry
	session *client.Session
	status  Status
}

// Job returns the job, with the payload as it was when the handler started.
func (t *Task) Job() Job { return t.status.Job }

// Runs counts the starts of the handler, this one included. A handler that is
// started again after its process was killed may have done part of the work.
func (t *Task) Runs() int { return t.status.Runs }

// Token returns the fencing token: what every write of the job has to carry.
func (t *Task) Token() uint64 { return t.session.Token() }

// Fence returns what the job has to show where it writes: see package guard.
func (t *Task) Fence() guard.Fence {
	status, _ := t.session.Status()
	f := guard.Of(status.Lease)
	f.Token = t.session.Token()
	return f
}

// Err returns nil while the lease can be trusted: ask it right before a side
// effect that no fence guards. See client.Session.Err.
func (t *Task) Err() error { return t.session.Err() }

// Save replaces the job's payload, on disk when it returns: a handler that is
// started again goes on from it. It is refused once the lease is lost.
func (t *Task) Save(payload []byte) error {
	if err := t.session.Err(); err != nil {
		return err
	}
	if err := (&Job{ID: t.status.ID, Payload: payload}).check(); err != nil {
		return err
	}
	return t.runner.update(t.entry, func(s *Status) error {
		if s.State != Running || s.Token != t.Token() {
			return fmt.Errorf("job %s: %w", s.ID, errOver)
		}
		s.Payload = append([]byte{}, payload...)
		return nil
	})
}

// Kind is what an Event is about.
type Kind string

// The kinds of events.
const (
	JobStarted  Kind = "started"  // the handler starts, with a new lease or again with its old one
	JobQueued   Kind = "queued"   // the job waits for another turn; Err says why
	JobDone     Kind = "done"     // see State
	JobFailed   Kind = "failed"   // see State; Err says why
	JobLost     Kind = "lost"     // see State; Err says why
	JobStuck    Kind = "stuck"    // the handler ignores that its context has ended
	JobReturned Kind = "returned" // a handler that was stuck has returned
	// LeaseReleased: a lease was found for which there is no job.
	LeaseReleased Kind = "lease released"
	// ReleaseFailed: the lease ends by itself, with its TTL.
	ReleaseFailed Kind = "release failed"
	// RecoveryFailed: the leases that are held could not be listed. It is tried again.
	RecoveryFailed Kind = "recovery failed"
)

// Event is something that happened to a job, or to a lease without one.
type Event struct {
	Kind    Kind
	Job     Status // zero for a lease without a job
	LeaseID string
	Token   uint64
	Err     error
	// Stack is where the handler panicked.
	Stack []byte
}
