package valkey

import (
	"context"
	"errors"
	"fmt"

	"github.com/valkey-io/valkey-go"
)

// cleanBatch is how many keys Clean removes at a time.
const cleanBatch = 500

// Abandon ends a store as the death of its process would: nothing is said to the
// server, and calls that wait vanish. It is for whoever tries out what becomes
// of what a dead gateway leaves; everybody else calls Close.
func (s *Store) Abandon() {
	s.handle.Die()
	if s.stop() {
		s.link.close()
	}
}

// Clean removes every key that begins with prefix from the servers that cfg
// leads to. It is for whoever wrote below a prefix that nobody else has.
func Clean(ctx context.Context, cfg Config, prefix string) error {
	cfg.Prefix = prefix // checked as one, so that it holds no wildcard
	cfg, err := cfg.check()
	if err != nil {
		return err
	}
	sc, err := newScripts()
	if err != nil {
		return err
	}
	l := newLink(cfg, sc.rights, func() {})
	defer l.close()
	c, err := l.get(ctx)
	if err != nil {
		return err
	}
	nodes := map[string]valkey.Client{"": c}
	if l.clustered(c) {
		nodes = c.Nodes()
	}
	var all []error
	for _, n := range nodes {
		info, err := l.info(ctx, n)
		if err == nil && info["role"] == "master" {
			err = cleanNode(ctx, n, prefix)
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// cleanNode removes the keys of one primary.
func cleanNode(ctx context.Context, c valkey.Client, prefix string) error {
	for cursor := uint64(0); ; {
		page, err := c.Do(ctx, c.B().Scan().Cursor(cursor).Match(prefix+"*").Count(cleanBatch).Build()).AsScanEntry()
		if err != nil {
			return fmt.Errorf("look for what to remove: %w", err)
		}
		for _, key := range page.Elements { // one by one: in a cluster they lie in many slots
			if err := c.Do(ctx, c.B().Unlink().Key(key).Build()).Error(); err != nil {
				return fmt.Errorf("remove: %w", err)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return nil
		}
	}
}
