// Package proc runs commands of this module as real processes on loopback, for
// tests: built from the tree, on free ports, with data folders of their own,
// stopped at the end of the test by process id.
package proc
