package raftkv

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"time"
)

// overGrace is how long after the end of its wait a forwarded call leaves it to
// the leader to notice. The leader counts from when it got the call, which is late
// when many come at once.
const overGrace = 10 * time.Millisecond

// maxDepartures bounds the calls that are ended by one message.
const maxDepartures = 4096

// departure ends the wait of a forwarded call at the leader, which then answers
// that call.
type departure struct {
	_  struct{} `cbor:",toarray"`
	ID string
	// Gone tells that nobody takes a grant any more: one that crosses is undone.
	// Otherwise the wait is just over.
	Gone bool
}

// departures are sent together: a thousand waits that end at the same time must
// not be a thousand messages.
type departures struct {
	engine *Engine

	mu    sync.Mutex
	queue map[string][]departure // by leader; an entry is there while a goroutine sends to it
}

func newDepartures(e *Engine) *departures {
	return &departures{engine: e, queue: make(map[string][]departure)}
}

func (d *departures) add(leader string, one departure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	queue, running := d.queue[leader]
	d.queue[leader] = append(queue, one)
	if !running && !d.engine.start(func() { d.run(leader) }) {
		delete(d.queue, leader)
	}
}

// run sends until nobody leaves.
func (d *departures) run(leader string) {
	for {
		d.mu.Lock()
		n := min(len(d.queue[leader]), maxDepartures)
		if n == 0 {
			delete(d.queue, leader)
			d.mu.Unlock()
			return
		}
		batch := d.queue[leader][:n:n]
		d.queue[leader] = d.queue[leader][n:]
		d.mu.Unlock()
		d.send(leader, batch)
	}
}

// send tells the leader. What it does not hear in time is of no use to it: the
// requests of these calls are cut then, which tells it the same.
func (d *departures) send(leader string, batch []departure) {
	ctx, cancel := context.WithTimeout(context.Background(), lateGrace)
	defer cancel()
	body := new(bytes.Buffer)
	err := d.engine.wire.enc.MarshalToBuffer(batch, body)
	if err == nil {
		_, _, err = d.engine.send(ctx, leader, leaveVerb, http.Header{"Content-Type": {callMediaType}}, body.Bytes())
	}
	if err != nil {
		d.engine.log.Debug("raftkv: the leader was not told of waits that ended", "leader", leader, "waits", len(batch), "err", err)
	}
}
