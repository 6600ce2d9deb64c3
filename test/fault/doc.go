// Package fault holds every backend to the same answers when its server fails:
// one table of situations and operations, with one column of expected answers for
// all backends to which a situation can happen. The servers are real and really
// killed, paused, cut off, filled up; for raftkv, whose servers are this process
// and its peers, the log is what fails.
//
// A client must not be able to tell from an outage which backend it is on.
package fault
