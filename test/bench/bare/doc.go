// Command bare is the yardstick of test/bench: a gin handler that decodes and
// encodes the JSON of an acquire and a release, and does nothing else.
package main
