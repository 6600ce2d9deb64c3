package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

// submissions is what batches give to raft, answered by the test.
type submissions struct {
	mu   sync.Mutex
	all  []string
	by   map[string]*submission
	done sync.WaitGroup
}

type submission struct {
	answered chan struct{}
	err      error
}

func (s *submission) Error() error     { <-s.answered; return s.err }
func (s *submission) Response() any    { return "response" }
func (s *submission) Index() uint64    { return 0 }
func (s *submission) answer(err error) { s.err = err; close(s.answered) }
func (s *submissions) of(c string) *submission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[c]
}

func (s *submissions) submit(command []byte) raft.ApplyFuture {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &submission{answered: make(chan struct{})}
	s.all = append(s.all, string(command))
	s.by[string(command)] = f
	return f
}

// want waits for what raft is to be given and checks that it is that alone.
func (s *submissions) want(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "raft is given as many commands", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.all) >= len(want)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.all); diff != "" {
		t.Fatalf("given to raft (-want +got):\n%s", diff)
	}
}

func newSubmissions(t *testing.T) (*batches, *submissions, func(string) *proposal) {
	t.Helper()
	s := &submissions{by: map[string]*submission{}}
	b := &batches{submit: s.submit, done: func() { s.done.Done() }}
	return b, s, func(c string) *proposal {
		s.done.Add(1)
		p := &proposal{command: []byte(c), answers: make(chan answer, 1)}
		b.put(p)
		return p
	}
}

// TestBatches_gather: what comes while a batch is on its way to the FSM goes
// together, once all of that has come there.
func TestBatches_gather(t *testing.T) {
	b, s, put := newSubmissions(t)
	one := put("1")
	s.want(t, "1")
	put("2")
	put("3")
	s.want(t, "1")
	b.arrived(1)
	s.want(t, "1", "2", "3")
	put("4")
	b.arrived(1)
	s.want(t, "1", "2", "3")
	b.arrived(1)
	s.want(t, "1", "2", "3", "4")
	for _, c := range []string{"1", "2", "3", "4"} {
		s.of(c).answer(nil)
	}
	s.done.Wait()
	if a := <-one.answers; a.err != nil || a.response != "response" {
		t.Errorf("answer = %+v, want raft's", a)
	}
}

// TestBatches_refused: what raft refuses never comes to the FSM, and holds up
// nobody.
func TestBatches_refused(t *testing.T) {
	b, s, put := newSubmissions(t)
	one, two := put("1"), put("2")
	s.want(t, "1")
	s.of("1").answer(raft.ErrNotLeader)
	if a := <-one.answers; !errors.Is(a.err, raft.ErrNotLeader) {
		t.Errorf("answer = %+v, want %v", a, raft.ErrNotLeader)
	}
	eventually(t, "the next is given to raft", func() bool { return s.of("2") != nil })
	s.of("2").answer(nil)
	<-two.answers
	s.done.Wait()
	eventually(t, "no batch is on its way after all were answered", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.current == nil
	})
}

// TestBatches_lateAnswers: the answers of an earlier batch do not let a third
// one go while the second is on its way.
func TestBatches_lateAnswers(t *testing.T) {
	b, s, put := newSubmissions(t)
	one := put("1")
	b.arrived(1)
	put("2")
	s.want(t, "1", "2")
	s.of("1").answer(nil)
	<-one.answers
	put("3")
	s.want(t, "1", "2")
	b.arrived(1)
	s.want(t, "1", "2", "3")
	s.of("2").answer(nil)
	s.of("3").answer(nil)
	s.done.Wait()
}

func TestBatches_remove(t *testing.T) {
	b, s, put := newSubmissions(t)
	one, two, _ := put("1"), put("2"), put("3")
	if b.remove(one) {
		t.Error("a command that raft has was removed")
	}
	if !b.remove(two) || b.remove(two) {
		t.Error("a command in the queue can be removed once")
	}
	s.done.Done()
	b.arrived(1)
	s.want(t, "1", "3")
	s.of("1").answer(nil)
	s.of("3").answer(nil)
	s.done.Wait()
}

// TestNode_Propose_queued: a caller that gives up before raft was given its
// command is told so, and the command is never applied.
func TestNode_Propose_queued(t *testing.T) {
	fsm := new(ledger)
	n := lead(t, testConfig(t.TempDir()), fsm)
	release := stopMainLoop(t, n)
	asked, held := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := n.Propose(submitting{testContext(t), sync.OnceFunc(func() { close(asked) })}, []byte("held"))
		held <- err
	}()
	<-asked
	why := errors.New("client went away")
	for i := range 3 {
		ctx, cancel := context.WithCancelCause(context.Background())
		give := submitting{ctx, sync.OnceFunc(func() { cancel(why) })}
		if _, err := n.Propose(give, fmt.Append(nil, i)); !errors.Is(err, ErrNotSubmitted) || !errors.Is(err, why) {
			t.Errorf("Propose = %v, want %v and %v", err, ErrNotSubmitted, why)
		}
	}
	release()
	if err := <-held; err != nil {
		t.Errorf("the command that raft had: %v", err)
	}
	propose(t, n, "last")
	if diff := cmp.Diff([]string{"held", "last"}, fsm.content()); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
}
