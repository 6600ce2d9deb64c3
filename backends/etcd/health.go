package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leased/contract"
)

// Guarantees returns what the store promises on an etcd with default timings.
func Guarantees() contract.Guarantees {
	return contract.Guarantees{
		ProcessCrash: "everything acknowledged survives: etcd writes to disk before it answers, and the gateway keeps nothing; " +
			"how a lease ended that was released or revoked while etcd was out of space is on record as an expiry",
		MachineCrash: "everything acknowledged survives as long as a majority of the members keeps its disks",
		FailOver: "everything acknowledged survives; a new leader starts the TTLs of all leases afresh, so that a lease may last up to one TTL longer, " +
			"beyond its maximum lifetime too",
		Partition: "the side with a majority goes on; gateways on the other side answer unavailable or that the outcome is unknown",
		ClockStep: "nothing ends or lasts differently: etcd's leader counts TTLs on its monotonic clock; " +
			"displayed times are the gateway's and may be wrong, and so may the last seconds of a maximum lifetime; " +
			"what a grant, a renewal or a replay says is left never exceeds what etcd has left",
		Restore: "leases are as the backup has them; tokens rise only if the floor is raised, which a gateway that was running does by itself " +
			"when it finds etcd emptied or its revisions lower, and an operator must do otherwise",
		Granularity: time.Second,
		MinTTL:      time.Second,
		Slack:       4 * time.Second,
		Fairness:    "first come first served per key, over all gateways",
		QuotaExact:  true,
	}
}

// Health implements contract.Store. It reads what serving a key reads, and asks
// etcd for alarms and for its leader.
func (s *Store) Health(ctx context.Context, r *contract.HealthRequest) (contract.Health, error) {
	h := contract.Health{Guarantees: Guarantees()}
	ctx, end, err := s.begin(ctx, r.Validate)
	if err != nil {
		if code := contract.CodeOf(err); code == contract.CodeInvalid || code == contract.CodeClosed {
			return contract.Health{}, err
		}
		h.Detail = "the deadline passed before the store was asked"
		return h, nil
	}
	defer end()
	ctx = hopeless(ctx)
	resp, fail := s.pool.read(ctx,
		clientv3.OpGet(s.names.owned(r.Namespace), clientv3.WithPrefix(), clientv3.WithCountOnly()),
		clientv3.OpGet(s.names.sessions(), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(s.names.queues(r.Namespace), clientv3.WithPrefix()))
	if fail != nil {
		h.Detail = "etcd cannot be reached or does not serve"
		if e, ok := errors.AsType[*contract.Error](refusal(fail)); ok {
			h.Detail = e.Detail
		}
		return h, nil
	}
	h.ActiveLeases = resp.Responses[0].GetResponseRange().GetCount()
	sessions := map[string]bool{}
	for _, kv := range resp.Responses[1].GetResponseRange().GetKvs() {
		sessions[strings.TrimPrefix(string(kv.Key), s.names.sessions())] = true
	}
	for _, kv := range resp.Responses[2].GetResponseRange().GetKvs() {
		name := string(kv.Key)
		p, err := decodePlace(name[strings.LastIndexByte(name, '/')+1:], kv)
		if err != nil {
			h.Detail = "a stored queue cannot be read"
			return h, nil
		}
		if p.present(sessions) {
			h.Waiters++
		}
	}
	h.Detail, h.Leader = s.alarms(ctx)
	h.Ready = h.Detail == ""
	return h, nil
}

// alarms returns what etcd says is wrong with it, and its leader.
func (s *Store) alarms(ctx context.Context) (detail, leader string) {
	fail := s.pool.do(ctx, true, func(ctx context.Context, c *clientv3.Client) error {
		endpoint := c.Endpoints()[0]
		status, err := c.Status(ctx, endpoint)
		if err != nil {
			return err
		}
		if status.Leader != 0 {
			leader = fmt.Sprintf("%x", status.Leader)
		}
		list, err := c.AlarmList(ctx)
		if err != nil {
			return err
		}
		for _, a := range list.Alarms {
			switch a.Alarm {
			case pb.AlarmType_NOSPACE:
				detail = "etcd is out of space: leases can be ended and not granted"
			case pb.AlarmType_NONE:
			case pb.AlarmType_CORRUPT:
				detail = "etcd has found itself corrupt"
			}
		}
		return nil
	})
	if fail != nil && fail.elsewhere() {
		return "etcd cannot be reached or does not serve", leader
	}
	return detail, leader
}
