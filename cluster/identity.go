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
)

const identityVersion = 1

// identity says whose folder this is. It is written before the log is created
// and again once the log is complete.
type identity struct {
	Version   int    `json:"version"`
	NodeID    string `json:"node_id"`
	ClusterID string `json:"cluster_id"`
	// Founded is set when the first configuration is in the log. Until then raft
	// has never run here and nothing in the log is worth keeping; from then on a
	// missing log is a loss.
	Founded bool `json:"founded"`
}

func newIdentity(nodeID string) *identity {
	return &identity{Version: identityVersion, NodeID: nodeID, ClusterID: rand.Text()}
}

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
	case id.Version != identityVersion:
		return nil, fmt.Errorf("%s: version %d, this release knows %d: start the release that wrote it", path, id.Version, identityVersion)
	case id.NodeID == "" || id.ClusterID == "":
		return nil, fmt.Errorf("%s: node_id or cluster_id is missing", path)
	}
	return id, nil
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
