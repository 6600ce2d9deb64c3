package cluster

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/hashicorp/raft-wal/types"
)

// logList is the list of a log's segments, with raft's term and vote. Where its
// file is damaged bbolt panics, and where it is cut short, being mapped into
// memory, it faults; both are errors here.
type logList struct {
	types.MetaStore

	path string
}

func (l *logList) guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s is damaged: restore the directory from a backup: %v", l.path, p)
		}
	}()
	return do()
}

// Load reads the list and creates it if it is missing.
func (l *logList) Load(dir string) (state types.PersistentState, err error) {
	err = l.guard(func() error { state, err = l.MetaStore.Load(dir); return err })
	if err != nil {
		return state, err
	}
	return state, os.Chmod(l.path, fileMode)
}

// CommitState stores the list.
func (l *logList) CommitState(state types.PersistentState) error {
	return l.guard(func() error { return l.MetaStore.CommitState(state) })
}

// GetStable returns a value of raft's.
func (l *logList) GetStable(key []byte) (value []byte, err error) {
	err = l.guard(func() error { value, err = l.MetaStore.GetStable(key); return err })
	return value, err
}

// SetStable stores a value of raft's.
func (l *logList) SetStable(key, value []byte) error {
	return l.guard(func() error { return l.MetaStore.SetStable(key, value) })
}

// Close closes the file.
func (l *logList) Close() error { return l.guard(l.MetaStore.Close) }
