package etcd

import (
	"context"
	"crypto/rand"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lookEvery is how often a gateway looks whether etcd is still the one that it was.
const lookEvery = time.Second

// observe compares an answer with what was seen before its request was sent.
// Revisions only rise, and a cluster keeps its id: unless it was restored from a
// backup, or emptied.
func (p *pool) observe(before int64, resp *clientv3.TxnResponse) {
	rev, cluster := resp.Header.Revision, resp.Header.ClusterId
	was := p.cluster.Swap(cluster)
	if rev < before || was != 0 && was != cluster {
		p.seen.Store(rev)
		p.gone()
		return
	}
	for have := p.seen.Load(); rev > have && !p.seen.CompareAndSwap(have, rev); have = p.seen.Load() {
	}
}

// sameEpoch compares the epoch that was read with the one that was known before. Where
// there is none one is made: etcd is new, or was emptied.
func (p *pool) sameEpoch(ctx context.Context, known *string, read *pb.RangeResponse) *failure {
	if len(read.GetKvs()) == 0 {
		return p.makeEpoch(ctx, known)
	}
	p.setEpoch(known, string(read.Kvs[0].Value))
	return nil
}

func (p *pool) setEpoch(known *string, epoch string) {
	switch {
	case known != nil && *known == epoch:
	case p.epoch.CompareAndSwap(known, &epoch) && known != nil:
		p.gone()
	}
}

func (p *pool) makeEpoch(ctx context.Context, known *string) *failure {
	name, epoch := names{p.config.Prefix}.epoch(), rand.Text()
	var resp *clientv3.TxnResponse
	fail := p.do(ctx, true, func(ctx context.Context, c *clientv3.Client) (err error) {
		resp, err = c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", 0)).
			Then(clientv3.OpPut(name, epoch)).Else(clientv3.OpGet(name)).Commit()
		return err
	})
	switch {
	case fail != nil && fail.noSpace():
		return nil // reads need none
	case fail != nil:
		return fail
	}
	if !resp.Succeeded {
		epoch = string(resp.Responses[0].GetResponseRange().Kvs[0].Value)
	}
	p.setEpoch(known, epoch)
	return nil
}

// gone begins another age: watches of the one before end.
func (p *pool) gone() {
	p.wentBack()
	p.ageMu.Lock()
	defer p.ageMu.Unlock()
	close(p.age)
	p.age = make(chan struct{})
}

// present returns what is closed when etcd is found to have gone back since.
func (p *pool) present() <-chan struct{} {
	p.ageMu.Lock()
	defer p.ageMu.Unlock()
	return p.age
}

// look reads something, and so notices that etcd went back. It returns why etcd
// did not answer, or nil.
func (p *pool) look(ctx context.Context) *failure {
	ctx, cancel := context.WithTimeout(ctx, ownTimeout)
	defer cancel()
	_, fail := p.read(ctx, clientv3.OpGet(names{p.config.Prefix}.probe(), clientv3.WithCountOnly()))
	return fail
}
