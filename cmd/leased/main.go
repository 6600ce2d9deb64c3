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
	os.Exit(run(untilSignal(), &env{
		args: os.Args[1:], environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr,
		hostname: hostname, now: time.Now, version: version,
	}))
}

// untilSignal returns a context that the first signal ends. By then the signals
// have their usual meaning again, so that the second one ends the process at
// once; signal.NotifyContext would swallow one that comes right after the first.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		cancel()
	}()
	return ctx
}
