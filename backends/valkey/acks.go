package valkey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/valkey-io/valkey-go"

	"leased/contract"
)

// undoFor is for how long a grant that the replicas did not confirm is tried to
// be undone after its caller was told that the outcome is unknown.
const undoFor = time.Minute

// known is where a grant's stored answer tells that somebody knows of it.
const known = 2

// word is what the replicas said of a grant: why it is not confirmed, if so.
type word struct{ short error }

// tryAcknowledged grants only what enough replicas confirm. What another copy of
// the request was granted needs their word too, unless they gave it before.
func (s *Store) tryAcknowledged(ctx context.Context, a *attempt, args []string) (*reply, error) {
	acks := make(chan word, 1)
	msg, err := s.link.do(ctx, func(ctx context.Context, c valkey.Client) valkey.ValkeyResult {
		if len(acks) > 0 {
			<-acks // of an earlier run, which sent nothing
		}
		// WAIT speaks of what its own connection wrote: the two share one.
		d, release := c.Dedicate()
		defer release()
		res := s.scripts.acquire.lua.Exec(ctx, dedicated{c, d}, a.room.keys, args)
		if msg, err := res.ToMessage(); err == nil && needsAcks(msg) {
			acks <- word{s.confirmed(ctx, d)}
		} else {
			acks <- word{}
		}
		return res
	})
	if err != nil {
		if _, unsent := errors.AsType[*contract.Error](err); !unsent {
			s.start(func(context.Context) { // it may run still, whatever the caller is told
				if w := <-acks; w.short != nil { // bounded as the connection is
					s.undoLater(a, nonceOf(args[argHead]))
				}
			})
		}
		return nil, s.link.rules.of(ctx, err, false)
	}
	rep, err := s.parse(a.room, s.scripts.acquire, msg)
	if err != nil || !unsure(rep) {
		return rep, err
	}
	short := (<-acks).short
	copied := rep.number(1) == 1
	switch {
	case short == nil && !copied:
		return rep, nil
	case short == nil:
		return s.confirm(ctx, a, rep)
	case copied: // whoever was granted it undoes it
		return nil, contract.Errorf(contract.CodeOutcomeUnknown, short, "the replicas did not confirm the grant so far; repeat it with the same request id")
	}
	return s.unconfirmed(ctx, a, rep, short)
}

// needsAcks tells whether an answer of the acquire script is a grant that nobody
// was told of. It tells no observer, unlike parse.
func needsAcks(msg valkey.ValkeyMessage) bool {
	items, err := msg.ToArray()
	if err != nil || len(items) < 4 {
		return false
	}
	code, err := items[1].ToString()
	return err == nil && unsure(&reply{code: code, rest: items[3:]})
}

// unsure tells that an answer is an active grant that replicas have to confirm.
func unsure(rep *reply) bool {
	rec := rep.text(0)
	return rep.code == "acquired" && len(rec) > 1 && rec[1] == byte(contract.StateActive) && rep.number(known) == 0
}

// confirmed waits for the replicas, not beyond the deadline.
func (s *Store) confirmed(ctx context.Context, d valkey.DedicatedClient) error {
	limit := s.cfg.ReplicaTimeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	// 0 would be without end.
	wait := d.B().Wait().Numreplicas(int64(s.cfg.ReplicaAcks)).Timeout(max(limit.Milliseconds(), 1)).Build()
	n, err := d.Do(ctx, wait).AsInt64()
	if err == nil && n < int64(s.cfg.ReplicaAcks) {
		err = fmt.Errorf("%d of %d replicas confirmed", n, s.cfg.ReplicaAcks)
	}
	return err
}

// confirm notes that a grant is known, and answers what it is by now.
func (s *Store) confirm(ctx context.Context, a *attempt, granted *reply) (*reply, error) {
	rep, err := s.exec(ctx, a.room, s.scripts.confirm, a.key.String(), string(a.scope[:]), nonceOf(granted.text(0)))
	if err != nil {
		return nil, contract.Errorf(contract.CodeOutcomeUnknown, err, "it is not known whether the grant stands; repeat it with the same request id")
	}
	if rep.code == "gone" {
		return nil, unavailable(nil, "the replicas did not confirm the grant; it was undone")
	}
	return rep, nil
}

// unconfirmed undoes a grant. That may take no longer than the call; if it is
// not done by then the outcome is unknown, and the undoing goes on.
func (s *Store) unconfirmed(ctx context.Context, a *attempt, granted *reply, short error) (*reply, error) {
	nonce := nonceOf(granted.text(0))
	limit := time.Now().Add(s.cfg.ReplicaTimeout + finalTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(finalTimeout).Before(limit) {
		limit = deadline.Add(finalTimeout)
	}
	undoing, cancel := context.WithDeadline(context.WithoutCancel(ctx), limit)
	defer cancel()
	back, err := s.take(undoing, a, nonce)
	switch {
	case err != nil:
		s.undoLater(a, nonce)
		return nil, contract.Errorf(contract.CodeOutcomeUnknown, short, "the replicas did not confirm the grant and it is not undone yet; repeat it with the same request id")
	case back.code == "acquired": // they confirmed it to a copy meanwhile
		return back, nil
	}
	return nil, unavailable(short, "the replicas did not confirm the grant; it was undone")
}

// undoLater undoes a grant in the background, unless somebody is told of it.
func (s *Store) undoLater(a *attempt, nonce string) {
	began := time.Now()
	s.start(func(ctx context.Context) {
		for time.Since(began) < undoFor {
			try, cancel := context.WithTimeout(ctx, checkTimeout)
			_, err := s.take(try, a, nonce)
			cancel()
			if err == nil || !sleep(ctx, leavePause) {
				return
			}
		}
	})
}

// dedicated is a client whose commands all go over one connection.
type dedicated struct {
	valkey.Client
	one valkey.DedicatedClient
}

func (d dedicated) Do(ctx context.Context, cmd valkey.Completed) valkey.ValkeyResult {
	return d.one.Do(ctx, cmd)
}
