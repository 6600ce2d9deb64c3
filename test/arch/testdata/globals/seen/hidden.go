//go:build secret

package seen
