package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// cleanBatch is how many keys Clean reads at a time.
const cleanBatch = 500

// Abandon ends the store as the death of its process would: calls are cut,
// waiters vanish, and etcd is told nothing. It is for whoever tries out what
// becomes of what a dead gateway leaves; everybody else calls Close.
func (s *Store) Abandon() {
	if s.dead.Swap(true) {
		return
	}
	s.handle.Die()
	s.stop()
	s.pool.stop()
	s.background.Wait()
	_ = s.pool.close() // the connections are gone either way
}

// Clean removes every key that begins with prefix, and the etcd leases that
// hold them. It is for whoever wrote below a prefix that nobody else has.
func Clean(ctx context.Context, c Config, prefix string) error {
	switch err := c.validate(); {
	case err != nil:
		return err
	case prefix == "":
		return errors.New("etcd: there is no prefix to clean below")
	}
	cl, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: c.Endpoints, DialTimeout: createTimeout, Username: c.Username, Password: c.Password,
		TLS: c.TLS, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer func() { _ = cl.Close() }()
	// A lease takes its keys along, and would otherwise stay as long as its TTL.
	for from := prefix; ; {
		page, err := cl.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithKeysOnly(), clientv3.WithLimit(cleanBatch))
		if err != nil {
			return fmt.Errorf("look for what to remove: %w", err)
		}
		revoked := map[int64]bool{0: true}
		for _, kv := range page.Kvs {
			if revoked[kv.Lease] {
				continue
			}
			revoked[kv.Lease] = true
			if _, err := cl.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err != nil && !isErr(err, rpctypes.ErrLeaseNotFound) {
				return fmt.Errorf("revoke a lease: %w", err)
			}
		}
		if !page.More {
			break
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
	if _, err := cl.Delete(ctx, prefix, clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}
