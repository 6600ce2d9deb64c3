package proc

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLateness: what the process was run late is counted for the time in which it was.
func TestLateness(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	l := &Lateness{due: at(5)}
	l.run(at(5))
	l.run(at(15))  // due at 10, and not late
	l.run(at(120)) // due at 20
	l.run(at(125))
	l.run(at(330)) // due at 130; due again at 335
	for _, test := range []struct{ from, to, want int }{
		{0, 10, 0}, {0, 20, 0}, {0, 125, 100}, {0, 70, 50}, {70, 330, 250}, {20, 335, 300}, {121, 130, 0}, {330, 345, 0}, {330, 445, 100},
	} {
		if got, want := l.Between(at(test.from), at(test.to)), time.Duration(test.want)*time.Millisecond; got != want {
			t.Errorf("from %d to %d ms it waited for %v, want %v", test.from, test.to, got, want)
		}
	}
}

// TestWatchLateness: a process that is run when it wants to be is never late.
func TestWatchLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begin := WatchLateness(t), time.Now()
		time.Sleep(time.Second)
		if got := l.Took(begin); got != time.Second {
			t.Errorf("a second without lateness took %v", got)
		}
		if got := len(l.late); got != 0 {
			t.Errorf("it was late %d times", got)
		}
	})
}
