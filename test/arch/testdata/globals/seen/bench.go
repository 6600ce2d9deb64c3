//go:build bench

package seen
