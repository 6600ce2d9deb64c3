// Package deploy holds the examples of deploy/ to what leased takes: a file that
// does not parse, or a configuration that this release refuses, fails here.
package deploy
