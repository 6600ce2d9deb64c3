package cluster

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	identityVersion = 2
	// identityAlone is the version of releases that ran single nodes only, whose
	// folders have no incarnation.
	identityAlone = 1
	// incarnationLength makes two folders of one node differ; 50 bits.
	incarnationLength = 10
)

// identity says whose folder this is. It is written before the log is created
// and again once the log is complete.
type identity struct {
	Version int    `json:"version"`
	NodeID  string `json:"node_id"`
	// Incarnation tells this folder from others of the same node, see serverID.
	Incarnation string `json:"incarnation,omitempty"`
	ClusterID   string `json:"cluster_id"`
	// Founded is set when the first configuration is in the log. Until then raft
	// has sent nothing from here and nothing in the log is worth keeping; from then
	// on a missing log is a loss.
	Founded bool `json:"founded"`
	// Joined is set when a leader has taken the node in. Its log comes from there,
	// and as it may hold votes it is never begun again either.
	Joined bool `json:"joined,omitempty"`
	// Voter is what the node is to become, or has become.
	Voter bool `json:"voter,omitempty"`
	// Pending is the first configuration that this node has agreed to. It binds
	// nobody until a member has Founded it.
	Pending *founding `json:"pending,omitempty"`
}

func newIdentity(nodeID string) *identity {
	return &identity{
		Version: identityVersion, NodeID: nodeID,
		Incarnation: strings.ToLower(rand.Text()[:incarnationLength]),
		ClusterID:   rand.Text(),
	}
}

func (id *identity) serverID() string { return serverID(id.NodeID, id.Incarnation) }

// readIdentity returns nil without an error when there is none.
func readIdentity(path string) (*identity, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // no identity yet is the ordinary first start
	}
	if err != nil {
		return nil, err
	}
	id := new(identity)
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(id); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: data after the identity", path)
	}
	switch {
	case id.Version != identityVersion && id.Version != identityAlone:
		return nil, fmt.Errorf("%s: version %d, this release knows %d and %d: start the release that wrote it",
			path, id.Version, identityAlone, identityVersion)
	case id.NodeID == "" || id.ClusterID == "":
		return nil, fmt.Errorf("%s: node_id or cluster_id is missing", path)
	}
	return id, nil
}

// member tells whether the node belongs to a cluster, for ever.
func (id *identity) member() bool { return id.Founded || id.Joined }

// identityKeeper is the identity on disk and a copy to read.
type identityKeeper struct {
	path    string
	writing sync.Mutex // held while the file is written: one change after the other
	current atomic.Pointer[identity]
}

// get returns the identity as it is on disk. It must not be changed.
func (k *identityKeeper) get() *identity { return k.current.Load() }

// change makes the changes of edit durable before anybody sees them. An error of
// edit leaves everything as it was.
func (k *identityKeeper) change(edit func(id *identity) error) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	next := *k.get()
	next.Version = identityVersion
	if err := edit(&next); err != nil {
		return err
	}
	if err := next.write(k.path); err != nil {
		return fmt.Errorf("write %s: %w", k.path, err)
	}
	k.current.Store(&next)
	return nil
}

// write replaces the file at path. After a crash there is the old identity or
// the new one, whole.
func (id *identity) write(path string) error {
	content, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return replaceFile(path, append(content, '\n'))
}

// replaceFile writes content to path so that a crash leaves the old or the new
// content, and a return without error the new one for good.
func replaceFile(path string, content []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+tempSuffix)
	if err != nil {
		return err
	}
	_, err = temp.Write(content)
	if err == nil {
		// Without it the rename can reach the disk before the content does.
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes created, renamed and removed names of a folder durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
