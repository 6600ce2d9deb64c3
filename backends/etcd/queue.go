package etcd

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"leased/contract"
)

// queue is the value under a key's queue: who waits, first come first. What a
// waiter asked for stays with the gateways at which it waits; a place is no more
// than its right to a turn.
type queue struct {
	Version int     `json:"v"`
	Places  []place `json:"p"`
}

// place is a request id's place in the queue.
type place struct {
	Scope       []byte `json:"s"`
	Fingerprint []byte `json:"f"`
	// At has the sessions of the gateways at which calls wait here. One that has
	// ended does not count, so that a gateway that died leaves all its places at
	// once. A place with none is away: it is skipped when its turn comes.
	At []string `json:"at,omitempty"`
	// Left is when it was last seen to be away, in microseconds; Keep how long it
	// is kept then.
	Left int64         `json:"left,omitempty"`
	Keep time.Duration `json:"keep"`
}

func decodeQueue(value []byte) (*queue, error) {
	var q queue
	if err := json.Unmarshal(value, &q); err != nil || q.Version != recordVersion {
		return nil, corrupt(err, "a stored queue cannot be read")
	}
	return &q, nil
}

// clone returns a copy to be changed.
func (q *queue) clone() *queue {
	c := &queue{Version: recordVersion, Places: slices.Clone(q.Places)}
	for i := range c.Places {
		c.Places[i].At = slices.Clone(c.Places[i].At)
	}
	return c
}

// present reports whether somebody waits at the place.
func (p *place) present(sessions map[string]bool) bool {
	return slices.ContainsFunc(p.At, func(id string) bool { return sessions[id] })
}

func (p *place) of(scope contract.Scope) bool { return bytes.Equal(p.Scope, scope[:]) }

// place returns the scope's place, or nil.
func (q *queue) place(scope contract.Scope) *place {
	for i := range q.Places {
		if q.Places[i].of(scope) {
			return &q.Places[i]
		}
	}
	return nil
}

// first returns the index of the first place where somebody waits, or -1.
func (q *queue) first(sessions map[string]bool) int {
	return slices.IndexFunc(q.Places, func(p place) bool { return p.present(sessions) })
}

// seenBy counts those who would be served, and those of them who come before the
// scope's own place, if it has one.
func (q *queue) seenBy(scope contract.Scope, sessions map[string]bool) contract.Queue {
	var seen contract.Queue
	for i := range q.Places {
		p := &q.Places[i]
		if p.of(scope) {
			seen.Position = seen.Length + 1
		}
		if p.present(sessions) {
			seen.Length++
		}
	}
	return seen
}

// settle drops places that were kept long enough and notes when others were
// found away.
func (q *queue) settle(sessions map[string]bool, now int64) {
	q.Places = slices.DeleteFunc(q.Places, func(p place) bool {
		return p.Left != 0 && !p.present(sessions) && time.Duration(now-p.Left)*time.Microsecond > p.Keep
	})
	for i := range q.Places {
		p := &q.Places[i]
		p.At = slices.DeleteFunc(p.At, func(id string) bool { return !sessions[id] })
		switch {
		case len(p.At) > 0:
			p.Left = 0
		case p.Left == 0:
			p.Left = now
		}
	}
}

// room makes room for one more place and reports whether there is. Only those
// present count against the limit, but the places of a key are no more than it:
// the one that is away longest is lost to a newcomer.
func (q *queue) room(limit int, sessions map[string]bool) bool {
	if limit == 0 || len(q.Places) < limit {
		return true
	}
	longest := -1
	for i := range q.Places {
		p := &q.Places[i]
		if !p.present(sessions) && (longest < 0 || p.Left < q.Places[longest].Left) {
			longest = i
		}
	}
	if longest < 0 {
		return false
	}
	q.Places = slices.Delete(q.Places, longest, longest+1)
	return true
}
