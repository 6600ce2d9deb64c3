package proc

import (
	"errors"
	"time"
)

// Patience is how long to wait for what must come, however slow the machine.
const Patience = 30 * time.Second

// mostPause is the longest pause between two looks.
const mostPause = 20 * time.Millisecond

// Until looks again and again, for at most limit, until done. What must come
// within a time that is promised has that as its limit, all else has Patience.
func Until(t TB, what string, limit time.Duration, done func() bool) {
	t.Helper()
	no := errors.New("it is not done")
	Succeeds(t, what, limit, func() error {
		if done() {
			return nil
		}
		return no
	})
}

// Succeeds is Until for what tells why it is not done.
func Succeeds(t TB, what string, limit time.Duration, try func() error) {
	t.Helper()
	over := time.NewTimer(limit)
	defer over.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, mostPause) {
		err := try()
		if err == nil {
			return
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-over.C:
			t.Fatalf("after %v still not: %s: %v", limit, what, err)
		}
	}
}
