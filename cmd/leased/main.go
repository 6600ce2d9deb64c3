package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// version is set by the linker, see the Makefile.
var version = "dev"

func main() {
	hostname, _ := os.Hostname() // empty: --instance is required then
	ctx, take := untilSignal()
	os.Exit(run(ctx, &env{
		args: os.Args[1:], environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr,
		hostname: hostname, now: time.Now, version: version,
		takeSignals: take, supervisor: []string{self(), superviseName},
	}))
}

// self returns this program's file. The link leads to it also after an upgrade
// has put another in its place.
func self() string {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link
	}
	file, _ := os.Executable() // empty: starting it says what is wrong
	return file
}

// untilSignal returns a context that the first signal ends. By then the signals
// have their usual meaning again, so that the second one ends the process at
// once; signal.NotifyContext would swallow one that comes right after the first.
// take makes signals somebody else's, see env.
func untilSignal() (ctx context.Context, take func([]os.Signal) (<-chan os.Signal, func())) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	notify(signals, []os.Signal{os.Interrupt, syscall.SIGTERM})
	taken, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-signals:
			signal.Reset(os.Interrupt, syscall.SIGTERM)
			cancel()
		case <-taken:
		}
	}()
	return ctx, func(list []os.Signal) (<-chan os.Signal, func()) {
		// Both are told for a moment, so that no signal is lost: the context may end
		// although the signal was taken, and not the reverse.
		to := make(chan os.Signal, 16)
		notify(to, list)
		// A reader of its output that is gone is no reason for a holder to die. It is
		// not ignored, which its command would inherit; nobody reads that channel.
		notify(make(chan os.Signal, 1), []os.Signal{syscall.SIGPIPE})
		signal.Stop(signals)
		close(taken)
		<-ended
		return to, func() { signal.Stop(to) }
	}
}

// notify is signal.Notify, which also makes a signal have an effect that is
// ignored, as those of the keyboard are in a script's background jobs.
func notify(to chan<- os.Signal, list []os.Signal) {
	for _, s := range list {
		if !signal.Ignored(s) {
			signal.Notify(to, s)
		}
	}
}
