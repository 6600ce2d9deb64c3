package etcd

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestSteps bounds how often a line looks at its key in a row when nothing comes of
// it, and goes on as long as something does.
func TestSteps(t *testing.T) {
	a := waitingAttempt(t)
	for _, c := range []struct {
		name string
		once func(n int) (look, error)
		want int // looks
		then time.Duration
		err  error
	}{
		{name: "nothing to do", once: func(int) (look, error) { return look{again: 7}, nil }, want: 1, then: 7},
		{name: "nothing comes of it", once: func(int) (look, error) { return look{more: true, next: a}, nil }, want: looks, then: looksPause},
		{name: "an error", once: func(int) (look, error) { return look{more: true}, errors.ErrUnsupported }, want: 1, then: retryPause, err: errors.ErrUnsupported},
		{name: "much to do", once: func(n int) (look, error) { return look{more: n < 100, wrote: true}, nil }, want: 100},
		{
			name: "something is done now and then",
			once: func(n int) (look, error) { return look{more: true, wrote: n%looks == 0 && n < 80}, nil }, want: 72 + looks, then: looksPause,
		},
	} {
		n := 0
		var last look
		again, err := steps(t.Context(), func(_ context.Context, next *attempt) (k look, err error) {
			if n > 0 && next != last.next {
				t.Errorf("%s: a look is not about what the one before it said", c.name)
			}
			n++
			last, err = c.once(n)
			return last, err
		})
		if n != c.want || again != c.then || !errors.Is(err, c.err) {
			t.Errorf("%s: %d looks, then a pause of %v, error %v, want %d, %v and %v", c.name, n, again, err, c.want, c.then, c.err)
		}
	}
}
