package proc

import (
	"time"
	"unsafe"
)

// AheadOnTheWall returns t with its wall clock, and not the monotonic one, ahead by
// whole seconds: as time.Now is after a machine was suspended. No exported function
// of package time makes such a time.
func AheadOnTheWall(t time.Time, seconds int) time.Time {
	type layout struct {
		wall uint64 // 1 bit monotonic, 33 bits seconds, 30 bits nanoseconds
		ext  int64
		loc  *time.Location
	}
	(*layout)(unsafe.Pointer(&t)).wall += uint64(seconds) << 30
	return t
}
