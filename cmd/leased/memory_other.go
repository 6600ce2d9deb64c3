//go:build !linux

package main

// adviseHugePages does nothing where the kernel takes no such advice.
func adviseHugePages() {}
