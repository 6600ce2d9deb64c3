package runner

import "time"

// OpenAt is Open with a function that is called before each step after which a
// killed process leaves another folder behind.
func OpenAt(o Options, step func(string)) (*Runner, error) {
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	o.Parallel, o.StopWithin = 4, DefaultStopWithin
	return open(o, step)
}

// SetPause sets how long the runner waits before it tries again.
func (r *Runner) SetPause(d time.Duration) { r.pause = d }

// IsRunning reports whether Run has not returned.
func (r *Runner) IsRunning() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// FolderID is what the leases of the folder have in their metadata.
func (r *Runner) FolderID() string { return r.store.id }

// The bytes of a job's file, whatever they say.
func EncodeJob(folder string, s *Status) ([]byte, error) {
	return encode(jobHeader, &record{Folder: folder, Status: *s})
}

// Sealed puts the right header in front of any content.
func Sealed(content []byte) []byte { return seal(jobHeader, content) }

var (
	DecodeJob = decodeJob
	FileName  = fileName
)
