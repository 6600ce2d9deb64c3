package main

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// adviseHugePages asks the kernel to back the heap by huge pages for as far as
// its headroom goes, as it does unasked where that is its default. What the
// store remembers grows with every call, and in a virtual machine the first
// touch of a small page costs as much as encoding a reply.
//
// The advice stays with the addresses: the collector takes them back and gives
// them to what is allocated next. None of it is memory until it is used.
func adviseHugePages() {
	reserved := make([]byte, gcHeadroom)
	whole := len(reserved) / os.Getpagesize() * os.Getpagesize()
	_ = unix.Madvise(reserved[:whole], unix.MADV_HUGEPAGE) // a kernel without them goes on without them
	// Until the collector has taken them back the heap grows behind them, on small
	// pages; and it would wait for as much again to be allocated, which is most of
	// what a small store ever has.
	runtime.GC()
}
