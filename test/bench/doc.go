// Package bench measures what the project promises about speed and memory, and
// prints the ratios. Every comparison is made in one run, on one machine, with
// the same bodies, in turns, and both sides are real processes on loopback.
//
// It is behind the build tag bench: `make bench` runs it. It asserts only what
// was promised as a ratio or a bound, and prints everything else.
package bench
