package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"leased/client"
	"leased/cmd/leased/supervise"
	"leased/gateway/api"
)

// job is a command that runs under a session.
type job struct {
	env      *env
	flags    *runFlags
	session  *client.Session
	say      *narrator
	signals  <-chan os.Signal
	command  *supervise.Command
	terminal terminal
	pid      int
	exit     supervise.Event // Exited, or what came in its place
}

// startPatience is how long the process between this one and the command may take to
// start. A loaded machine takes a part of a second.
const startPatience = 30 * time.Second

// run starts the command and returns when no process of it is left.
func (j *job) run(ctx context.Context) error {
	if ctx.Err() != nil || j.session.Err() != nil {
		return interrupted(ctx)
	}
	status, changed := j.session.Status()
	c, err := supervise.Start(j.session.Context(), &supervise.Options{
		Patience: startPatience,
		Self:     j.env.supervisor, Path: j.flags.path, Args: j.flags.args, Env: j.environ(status.Lease),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Deadline: func() supervise.Deadline {
			now, _ := j.session.Status() // the lease may have been renewed
			return deadline(&now, j.margin())
		},
		Grace: j.margin() / 2,
	})
	if err != nil {
		return err
	}
	j.command = c
	defer j.terminal.back()
	lost := j.session.Context().Done()
	for {
		select {
		case e, ok := <-c.Events():
			if !ok {
				return j.result()
			}
			j.event(&e)
		case <-changed:
			var next client.Status
			next, changed = j.session.Status()
			j.change(&status, &next)
			status = next
		case <-lost:
			lost = nil
			j.say.lost(j.session.Err())
			c.Stop()
		case sig := <-j.signals:
			j.signal(sig)
		}
	}
}

// interrupted returns the error of a run whose signal came between the grant and
// the start, or nil if it was not a signal.
func interrupted(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("this command was interrupted before it started the other: %w", ctx.Err())
}

// margin returns the time between the end of the trust and that of the lease.
func (j *job) margin() time.Duration { return j.session.Margin() }

// deadline returns when the command has to have ended, by what is known of the
// lease.
func deadline(s *client.Status, margin time.Duration) supervise.Deadline {
	left := leftOf(s.TrustedUntil, time.Now())
	return supervise.Deadline{Term: supervise.In(left), Kill: supervise.In(left + margin/2)}
}

// leftOf returns the time until the trust ends by the clock on which more has
// passed, as the session does: the monotonic one stands still while the machine is
// suspended, also between a renewal and its answer.
func leftOf(until, now time.Time) time.Duration {
	return min(until.Sub(now), until.Round(0).Sub(now.Round(0)))
}

// environ returns the command's variables. Those of another lease, under which this
// process itself runs, are left out: of two with one name most programs take the
// first, and would write with the other lease's token.
func (j *job) environ(l *api.Lease) []string {
	own := []string{
		"LEASED_TOKEN=" + strconv.FormatUint(l.Token, 10), "LEASED_LEASE_ID=" + l.LeaseID, "LEASED_KEY_ID=" + l.KeyID,
		"LEASED_EXPIRES_AT=" + l.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	all := slices.Clone(own)
	for _, pair := range j.env.environ {
		name, _, _ := strings.Cut(pair, "=")
		if !slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, name+"=") }) {
			all = append(all, pair)
		}
	}
	return all
}

// change tells the supervisor and the user what is new of the lease.
func (j *job) change(old, now *client.Status) {
	switch now.State {
	case client.Held:
		j.command.Extend(deadline(now, j.margin()))
		j.say.renewed(now, old.State)
	case client.InDoubt:
		if old.State == client.Held {
			j.say.inDoubt(now)
		}
	default: // the context's end tells
	}
}

func (j *job) event(e *supervise.Event) {
	switch e.Kind {
	case supervise.Started:
		j.pid = e.PID
		j.say.started(e.PID)
	case supervise.Stopped:
		j.stopped(e.Signal)
	case supervise.Exited, supervise.Refused, supervise.Broken:
		if j.exit.Kind == 0 {
			j.exit = *e
		}
		j.say.ended(e)
	case supervise.Terminating:
		j.say.terminating()
	case supervise.Killing:
		j.say.killing()
	case supervise.Ended:
	}
}

// passedOn lists the signals that `leased run` takes.
func passedOn() []os.Signal {
	return []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT,
	}
}

func (j *job) signal(sig os.Signal) {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	switch number {
	case syscall.SIGCONT:
		j.resume()
	case syscall.SIGTSTP:
		if !orphaned() { // else nobody could continue it
			j.command.Signal(number, true)
		}
	case syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH:
		// Processes that do not expect one would die of it.
		j.command.Signal(number, false)
	default:
		j.say.passing(number)
		j.command.Signal(number, true)
	}
}

// stopped follows a command that was stopped: by a need for the terminal, which
// it gets, or by the user, who wants the prompt back.
func (j *job) stopped(sig syscall.Signal) {
	switch {
	case sig == syscall.SIGSTOP:
		return // not by the terminal: whoever did that continues it
	case sig != syscall.SIGTSTP && j.terminal.give(j.pid), sig == syscall.SIGTSTP && orphaned():
		j.command.Signal(syscall.SIGCONT, true)
		return
	case orphaned():
		// It would be stopped for ever, with a lease.
		j.say.noTerminal()
		j.command.Stop()
		return
	}
	j.terminal.lend()
	// The lease is not renewed meanwhile. The supervisor goes on, and ends the
	// stopped command when it is time.
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // cannot be refused
}

// resume continues a command that was stopped with this process, if the lease is
// still held: it must not take a step otherwise.
func (j *job) resume() {
	if j.session.Err() != nil {
		return // its context has ended, and the loop sees to it
	}
	j.terminal.again(j.pid)
	j.command.Signal(syscall.SIGCONT, true)
}

// result returns how the command ended.
func (j *job) result() error {
	switch {
	case j.exit.Kind == supervise.Refused:
		return &toldError{usagef("the command cannot be run: %s", j.exit.Error)}
	case j.exit.Kind == supervise.Broken:
		return &toldError{fmt.Errorf("%w (%s)", errSupervisor, j.exit.Error)}
	case j.exit.Signal != 0:
		return &commandError{128 + int(j.exit.Signal)}
	case j.exit.Code != 0:
		return &commandError{j.exit.Code}
	default:
		return nil
	}
}

const errSupervisor = supervisorError("the process between this one and the command was killed; what the command had started was killed too")

type supervisorError string

func (e supervisorError) Error() string { return string(e) }
