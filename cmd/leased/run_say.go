package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"leased/client"
	"leased/cmd/leased/supervise"
	"leased/gateway/api"
)

// waitingAfter is how long an acquire may take before the user is told that it
// waits.
const waitingAfter = 500 * time.Millisecond

// narrator tells on standard error what happens: in words, or as JSON with one
// event a line.
type narrator struct {
	env   *env
	flags *runFlags
	out   *outlet
	// saidLost is the run's own goroutine's.
	saidLost bool
}

// newNarrator returns one through which everything goes to standard error from now
// on, until the command has ended.
func newNarrator(e *env, r *runFlags) *narrator {
	n := &narrator{env: e, flags: r}
	n.out = newOutlet(e.stderr, func(dropped int) string {
		return n.text(&runEvent{Event: "dropped", Count: dropped}, "nobody read, and %d lines were dropped here", dropped)
	})
	e.stderr, e.atEnd = n.out, n.out.close
	return n
}

// runEvent is one line of JSON.
type runEvent struct {
	Event string   `json:"event"`
	At    api.Time `json:"at"`
	// Lease accompanies acquired and renewed.
	Lease *api.Lease `json:"lease,omitzero"`
	// PID accompanies started.
	PID int `json:"pid,omitzero"`
	// ExitCode and Signal accompany exited; Signal signalled.
	ExitCode *int   `json:"exit_code,omitzero"`
	Signal   string `json:"signal,omitzero"`
	// TrustedForMS accompanies acquired, renewed and in_doubt: the time until the
	// command is told to end.
	TrustedForMS int64 `json:"trusted_for_ms,omitzero"`
	// Count accompanies dropped.
	Count int `json:"count,omitzero"`
	// Code and Detail accompany in_doubt, lost and release_failed; Detail also refused
	// and supervisor_killed. Code is the API's; "in_doubt" where there was no renewal
	// in time.
	Code   api.Code `json:"code,omitzero"`
	Detail string   `json:"detail,omitzero"`
}

// tell writes one event. Routine is what a quiet run leaves out.
func (n *narrator) tell(routine bool, e *runEvent, format string, args ...any) {
	if routine && n.flags.quiet {
		return
	}
	if text := n.text(e, format, args...); text != "" {
		n.out.line(routine, text)
	}
}

// text returns an event as it is told, "" if it is not.
func (n *narrator) text(e *runEvent, format string, args ...any) string {
	if !n.flags.json {
		if format == "" {
			return ""
		}
		return fmt.Sprintf("leased: "+format+"\n", args...)
	}
	e.At = api.NewTime(n.env.now())
	text, err := json.Marshal(e, json.Deterministic(true))
	if err != nil {
		return ""
	}
	return string(text) + "\n"
}

func (n *narrator) waiting() {
	wait := ""
	if n.flags.request.Wait > 0 {
		wait = ", up to " + milliseconds(n.flags.request.Wait.Milliseconds())
	}
	n.tell(true, &runEvent{Event: "waiting"}, "waiting for the key%s", wait)
}

func (n *narrator) acquired(s *client.Session) {
	status, _ := s.Status()
	n.tell(true, &runEvent{Event: "acquired", Lease: status.Lease, TrustedForMS: trustedFor(&status)},
		"holding %s, lease %s, token %d", keyText(status.Lease.Key), clean(s.LeaseID()), s.Token())
}

func trustedFor(s *client.Status) int64 { return max(1, time.Until(s.TrustedUntil).Milliseconds()) }

func (n *narrator) started(pid int) {
	n.tell(true, &runEvent{Event: "started", PID: pid}, "")
}

func (n *narrator) renewed(now *client.Status, before client.State) {
	format := ""
	if before == client.InDoubt {
		format = "the lease is renewed again"
	}
	n.tell(before == client.Held, &runEvent{Event: "renewed", Lease: now.Lease, TrustedForMS: trustedFor(now)}, format)
}

func (n *narrator) inDoubt(now *client.Status) {
	e := &runEvent{Event: "in_doubt", TrustedForMS: trustedFor(now)}
	e.Code, e.Detail = explain(now.Err)
	n.tell(false, e, "the lease could not be renewed (%s); unless it can, the command is told to end in %s",
		why(e), milliseconds(e.TrustedForMS))
}

// lost tells once that the lease is lost.
func (n *narrator) lost(err error) {
	if n.saidLost || !errors.Is(err, client.ErrLost) {
		return
	}
	n.saidLost = true
	e := &runEvent{Event: "lost"}
	e.Code, e.Detail = explain(err)
	if errors.Is(err, client.ErrInDoubt) {
		e.Code = "in_doubt"
	}
	n.tell(false, e, "the lease is lost (%s)", why(e))
}

// explain returns what a person can use of an error of the client.
func explain(err error) (api.Code, string) {
	if lost, ok := errors.AsType[*client.LostError](err); ok {
		if err = lost.Err; err == nil {
			return "", client.ErrInDoubt.Error()
		}
	}
	refused, ok := errors.AsType[*client.Error](err)
	if !ok {
		return "", fmt.Sprint(err)
	}
	detail := refused.Problem.Detail
	if l := refused.Problem.Lease; l != nil && !l.EndedAt.IsZero() {
		detail = ending(l)
	}
	return refused.Problem.Code, detail
}

func why(e *runEvent) string {
	if e.Code == "" {
		return clean(e.Detail)
	}
	text := string(e.Code)
	if e.Detail != "" {
		text += ": " + clean(e.Detail)
	}
	return clean(text)
}

func (n *narrator) terminating() {
	n.tell(true, &runEvent{Event: "terminating"}, "sent SIGTERM to what still runs")
}

func (n *narrator) killing() {
	n.tell(false, &runEvent{Event: "killing"}, "sent SIGKILL to what had not ended")
}

func (n *narrator) noTerminal() {
	n.tell(false, &runEvent{Event: "no_terminal"}, "the command needs the terminal, which cannot be had")
}

func (n *narrator) passing(sig syscall.Signal) {
	n.tell(true, &runEvent{Event: "signalled", Signal: signalName(sig)}, "")
}

func (n *narrator) ended(e *supervise.Event) {
	switch {
	case e.Kind == supervise.Refused:
		n.tell(false, &runEvent{Event: "refused", Detail: e.Error}, "") // the last line says it in words
	case e.Kind == supervise.Broken:
		n.tell(false, &runEvent{Event: "supervisor_killed", Detail: e.Error}, "")
	case e.Signal != 0:
		n.tell(true, &runEvent{Event: "exited", Signal: signalName(e.Signal)}, "the command was ended by %s", signalName(e.Signal))
	default:
		n.tell(true, &runEvent{Event: "exited", ExitCode: &e.Code}, "")
	}
}

// released tells what became of the lease and returns the error that decides the
// exit code: a lease that was lost outweighs how the command ended, since what it
// did last may have been refused.
func (n *narrator) released(s *client.Session, released, ran error) error {
	switch {
	case released == nil:
		n.tell(true, &runEvent{Event: "released"}, "")
		return ran
	case errors.Is(released, client.ErrLost):
		n.lost(released)
		return &lostRunError{released}
	default:
		e := &runEvent{Event: "release_failed"}
		e.Code, e.Detail = explain(released)
		status, _ := s.Status()
		n.tell(false, e, "the lease could not be released (%s); it ends by itself at %s", why(e), instant(status.Lease.ExpiresAt))
		return ran
	}
}

// lostRunError is the end of a run whose lease was lost. What there is to say was said
// when it happened, unless the server told only when it was released.
type lostRunError struct{ err error }

func (e *lostRunError) Error() string { return e.err.Error() }
func (e *lostRunError) Unwrap() error { return e.err }
