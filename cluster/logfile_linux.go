package cluster

import (
	"errors"
	"syscall"

	"github.com/hashicorp/raft-wal/types"
	"golang.org/x/sys/unix"
)

// syncData makes durable what was written to the file.
func syncData(file types.WritableFile) error {
	f, ok := file.(syscall.Conn)
	if !ok {
		return file.Sync()
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var synced error
	err = conn.Control(func(fd uintptr) {
		for {
			if synced = unix.Fdatasync(int(fd)); !errors.Is(synced, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, synced)
}
