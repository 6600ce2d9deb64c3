//go:build !linux

package cluster

import "github.com/hashicorp/raft-wal/types"

// syncData makes durable what was written to the file.
func syncData(file types.WritableFile) error { return file.Sync() }
