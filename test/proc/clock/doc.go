// Command clock prints what its wall clock says at its start and 0.4 s later, and
// how long that took; then what it says at each line that it reads, to test how the
// clocks of processes are set.
package main
