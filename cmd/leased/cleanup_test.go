package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCleanups(t *testing.T) {
	var (
		c     cleanups
		order []string
	)
	broken := errors.New("disk is full")
	for _, step := range []struct {
		name string
		err  error
	}{{"audit", nil}, {"node", broken}, {"store", nil}, {"server", context.DeadlineExceeded}} {
		c.push(step.name, func(context.Context) error {
			order = append(order, step.name)
			return step.err
		})
	}
	err := c.run(t.Context(), slog.New(slog.DiscardHandler))
	if diff := cmp.Diff([]string{"server", "store", "node", "audit"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if !errors.Is(err, broken) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want every failure in it", err)
	}
	if want := "close server: context deadline exceeded\nclose node: disk is full"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if err := c.run(t.Context(), slog.New(slog.DiscardHandler)); err != nil || len(order) != 4 {
		t.Errorf("the second run closed something again: %v, %v", order, err)
	}
}
