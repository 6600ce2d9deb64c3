package fault

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"leased/backends/etcd"
	"leased/test/proc"
)

func openEtcd(t *testing.T, cfg etcd.Config) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// operator returns a client of whoever runs the server.
func operator(t *testing.T, user string, endpoints ...string) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop(), Username: user}
	if user != "" {
		cfg.Password = "secret"
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// within returns a context for what an operator does.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func etcdKilled(t *testing.T, _ string) *scene {
	t.Helper()
	e := proc.StartEtcd(t, proc.EtcdOptions{})
	return &scene{
		store:   openEtcd(t, etcd.Config{Endpoints: e.Endpoints()}),
		begin:   func(*testing.T) { e.Kill(0) },
		end:     func(t *testing.T) { t.Helper(); e.StartAll(t) },
		noticed: true,
	}
}

func etcdPaused(t *testing.T, _ string) *scene {
	t.Helper()
	e := proc.StartEtcd(t, proc.EtcdOptions{})
	return &scene{
		store: openEtcd(t, etcd.Config{Endpoints: e.Endpoints()}),
		begin: func(t *testing.T) { t.Helper(); e.Pause(t, 0) },
		end:   func(*testing.T) { e.Resume(0) },
	}
}

// etcdTraffic is a server behind a network that does that to what passes.
func etcdTraffic(traffic proc.Traffic) func(t *testing.T, ns string) *scene {
	return func(t *testing.T, _ string) *scene {
		t.Helper()
		e := proc.StartEtcd(t, proc.EtcdOptions{})
		p := proc.StartProxy(t, strings.TrimPrefix(e.Endpoints()[0], "http://"))
		return &scene{
			store:   openEtcd(t, etcd.Config{Endpoints: []string{"http://" + p.Address}}),
			begin:   func(t *testing.T) { t.Helper(); p.Set(t, traffic) },
			end:     func(t *testing.T) { t.Helper(); p.Set(t, proc.Pass) },
			noticed: traffic == proc.Refuse,
		}
	}
}

// etcdSwallowed loses the answer to a write. A store on etcd reads before it
// writes, so that the network must not go wrong before the server has changed
// something: answers are slow, and no more come from the first change on.
func etcdSwallowed(t *testing.T, _ string) *scene {
	t.Helper()
	e := proc.StartEtcd(t, proc.EtcdOptions{})
	p := proc.StartProxy(t, strings.TrimPrefix(e.Endpoints()[0], "http://"))
	op := operator(t, "", e.Endpoints()...)
	return &scene{
		store: openEtcd(t, etcd.Config{Endpoints: []string{"http://" + p.Address}}),
		later: true,
		begin: func(t *testing.T) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			changes := op.Watch(ctx, "leased/k/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
			<-changes // the watch is there
			p.Delay(callTimeout / 10)
			go func() {
				defer cancel()
				<-changes
				p.Set(t, proc.SwallowReplies)
			}()
		},
		end: func(t *testing.T) { t.Helper(); p.Delay(0); p.Set(t, proc.Pass) },
	}
}

// etcdMinority leaves one member of three.
func etcdMinority(t *testing.T, _ string) *scene {
	t.Helper()
	e := proc.StartEtcd(t, proc.EtcdOptions{Members: 3})
	return &scene{
		store:   openEtcd(t, etcd.Config{Endpoints: e.Endpoints()}),
		begin:   func(*testing.T) { e.Kill(1); e.Kill(2) },
		end:     func(t *testing.T) { t.Helper(); e.StartAll(t) },
		noticed: true,
	}
}

// etcdFull fills the server's quota.
func etcdFull(t *testing.T, _ string) *scene {
	t.Helper()
	e := proc.StartEtcd(t, proc.EtcdOptions{NoFsync: true, Args: []string{"--quota-backend-bytes=16777216"}})
	op := operator(t, "", e.Endpoints()...)
	return &scene{
		store: openEtcd(t, etcd.Config{Endpoints: e.Endpoints()}),
		begin: func(t *testing.T) {
			t.Helper()
			filler := strings.Repeat("x", 1<<20)
			for range 64 {
				_, err := op.Put(within(t), "filler", filler)
				if errors.Is(err, rpctypes.ErrNoSpace) {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Fatal("the quota is not reached")
		},
		end: func(t *testing.T) {
			t.Helper()
			rev := must(op.Delete(within(t), "filler"))(t).Header.Revision
			must(op.Compact(within(t), rev, clientv3.WithCompactPhysical()))(t)
			must(op.Defragment(within(t), e.Endpoints()[0]))(t)
			must(op.AlarmDisarm(within(t), &clientv3.AlarmMember{}))(t)
		},
	}
}

// etcdForbidden takes the permission from the store's user.
func etcdForbidden(t *testing.T, _ string) *scene {
	t.Helper()
	e := proc.StartEtcd(t, proc.EtcdOptions{})
	op := operator(t, "", e.Endpoints()...)
	for _, user := range []string{"root", "leased"} {
		must(op.RoleAdd(within(t), user))(t)
		must(op.UserAdd(within(t), user, "secret"))(t)
		must(op.UserGrantRole(within(t), user, user))(t)
	}
	must(op.RoleGrantPermission(within(t), "leased", "leased/", clientv3.GetPrefixRangeEnd("leased/"), clientv3.PermissionType(clientv3.PermReadWrite)))(t)
	must(op.AuthEnable(within(t)))(t)
	root := operator(t, "root", e.Endpoints()...)
	return &scene{
		store: openEtcd(t, etcd.Config{Endpoints: e.Endpoints(), Username: "leased", Password: "secret"}),
		begin: func(t *testing.T) {
			t.Helper()
			must(root.RoleRevokePermission(within(t), "leased", "leased/", clientv3.GetPrefixRangeEnd("leased/")))(t)
		},
		end: func(t *testing.T) {
			t.Helper()
			must(root.RoleGrantPermission(within(t), "leased", "leased/", clientv3.GetPrefixRangeEnd("leased/"), clientv3.PermissionType(clientv3.PermReadWrite)))(t)
		},
	}
}

// etcdForeign puts values that are no records where the store's are.
func etcdForeign(t *testing.T, _ string) *scene {
	t.Helper()
	e := proc.StartEtcd(t, proc.EtcdOptions{})
	op := operator(t, "", e.Endpoints()...)
	saved := map[string]string{}
	return &scene{
		store:   openEtcd(t, etcd.Config{Endpoints: e.Endpoints()}),
		spoiled: true, // a record's revision is part of it, and has changed
		begin: func(t *testing.T) {
			t.Helper()
			for _, kv := range must(op.Get(within(t), "leased/k/", clientv3.WithPrefix()))(t).Kvs {
				saved[string(kv.Key)] = string(kv.Value)
				must(op.Put(within(t), string(kv.Key), "{foreign", clientv3.WithIgnoreLease()))(t)
			}
		},
		end: func(t *testing.T) {
			t.Helper()
			for key, value := range saved {
				must(op.Put(within(t), key, value, clientv3.WithIgnoreLease()))(t)
			}
		},
	}
}
