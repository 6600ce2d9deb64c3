// Command clock prints what its wall clock says at its start and 0.4 s later, and
// how long that took, to test how the clocks of processes are set.
package main
