package raftkv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// leaderDouble is a node that answers what is carried to it.
type leaderDouble struct {
	wire wire
	// answer answers a batch; its time passes in a synctest bubble.
	answer func(ctx context.Context, calls []carriedCall) (status int, answers []carriedAnswer, err error)

	mu      sync.Mutex
	batches []int
}

func (l *leaderDouble) Leader() (string, <-chan struct{}) { return "n1", nil }
func (l *leaderDouble) Transport() http.RoundTripper      { return l }

func (l *leaderDouble) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var calls []carriedCall
	if err := l.wire.requests.Unmarshal(body, &calls); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.batches = append(l.batches, len(calls))
	l.mu.Unlock()
	status, answers, err := l.answer(r.Context(), calls)
	if err != nil {
		return nil, err
	}
	out := new(bytes.Buffer)
	for _, a := range answers {
		if err := l.wire.enc.MarshalToBuffer(a, out); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(out)}, nil
}

// echo answers every call with its own body, after a while.
func echo(after time.Duration) func(context.Context, []carriedCall) (int, []carriedAnswer, error) {
	return func(_ context.Context, calls []carriedCall) (int, []carriedAnswer, error) {
		time.Sleep(after)
		var answers []carriedAnswer
		for i := range calls {
			answers = append(answers, carriedAnswer{Call: uint32(i), Status: http.StatusOK, Body: calls[i].Body})
		}
		return http.StatusOK, answers, nil
	}
}

func newTestCarriers(answer func(context.Context, []carriedCall) (int, []carriedAnswer, error)) (*carriers, *leaderDouble) {
	l := &leaderDouble{wire: newWire(), answer: answer}
	e := &Engine{wire: newWire(), peers: l, log: slog.New(slog.DiscardHandler)}
	e.carriers = newCarriers(e)
	return e.carriers, l
}

func put(t *testing.T, c *carriers, body string) *parcel {
	t.Helper()
	p := &parcel{verb: "echo", deadline: time.Now().Add(time.Minute), body: []byte(body)}
	if !c.put("n1", p) {
		t.Fatal("the engine is closed")
	}
	return p
}

func wantEcho(t *testing.T, p *parcel) {
	t.Helper()
	if a := <-p.answers; a.err != nil || a.status != http.StatusOK || !bytes.Equal(a.body, p.body) {
		t.Errorf("call %.20q: got %d %.20q, error %v", p.body, a.status, a.body, a.err)
	}
}

// What comes while a batch is on its way travels in the next one, within bounds.
func TestCarriers_together(t *testing.T) {
	large := string(make([]byte, 400<<10))
	for _, tt := range []struct {
		name  string
		first string
		then  []string
		want  []int
	}{
		{"small", "first", make([]string, 20), []int{1, 20}},
		{"many", "first", make([]string, 2*maxCarried+1), []int{1, maxCarried, maxCarried, 1}},
		{"large", large, []string{large, large, large, "small"}, []int{1, 2, 2}},
		{"larger than a batch", "first", []string{"second", string(make([]byte, maxCall)), "third"}, []int{1, 1, 1, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l := newTestCarriers(echo(time.Millisecond))
				calls := []*parcel{put(t, c, tt.first)}
				synctest.Wait()
				for i, body := range tt.then {
					if body == "" {
						body = fmt.Sprint("call-", i)
					}
					calls = append(calls, put(t, c, body))
				}
				for _, p := range calls {
					wantEcho(t, p)
				}
				synctest.Wait()
				if diff := cmp.Diff(tt.want, l.batches); diff != "" {
					t.Errorf("batches (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A call that takes its time does not hold up those after it.
func TestCarriers_slowCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := echo(0)
		c, _ := newTestCarriers(func(ctx context.Context, calls []carriedCall) (int, []carriedAnswer, error) {
			if string(calls[0].Body) == "slow" {
				time.Sleep(time.Minute)
			}
			return quick(ctx, calls)
		})
		begin := time.Now()
		slow := put(t, c, "slow")
		synctest.Wait()
		wantEcho(t, put(t, c, "quick"))
		if took := time.Since(begin); took != carryPause {
			t.Errorf("answered after %v, want %v", took, carryPause)
		}
		wantEcho(t, slow)
	})
}

// A call that is given up was certainly not sent while it is in the queue, and is
// unknown afterwards. A batch for which nobody waits is given up.
func TestCarriers_giveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := make(chan error, 1)
		c, l := newTestCarriers(func(ctx context.Context, _ []carriedCall) (int, []carriedAnswer, error) {
			<-ctx.Done()
			cut <- ctx.Err()
			return 0, nil, ctx.Err()
		})
		first := put(t, c, "first")
		synctest.Wait()
		second := put(t, c, "second")
		if a := c.giveUp("n1", second, errLate); !isNotSent(a.err) || !errors.Is(a.err, errLate) {
			t.Errorf("in the queue: got error %v, want %v, not sent", a.err, errLate)
		}
		select {
		case err := <-cut:
			t.Errorf("the batch was given up while it is waited for: %v", err)
		default:
		}
		if a := c.giveUp("n1", first, errLate); isNotSent(a.err) || !errors.Is(a.err, errLate) {
			t.Errorf("on its way: got error %v, want %v, perhaps sent", a.err, errLate)
		}
		if err := <-cut; !errors.Is(err, context.Canceled) {
			t.Errorf("the batch ended with %v, want that it is given up", err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]int{1}, l.batches); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}

// Each call learns what is known of it, whatever comes back.
func TestCarriers_answers(t *testing.T) {
	lost := errors.New("lost")
	ok := func(i uint32) carriedAnswer {
		return carriedAnswer{Call: i, Status: http.StatusOK, Body: []byte{byte(i)}}
	}
	for _, tt := range []struct {
		name     string
		status   int
		answers  []carriedAnswer
		err      error
		want     [2]int   // statuses
		wantErrs [2]error // or errors
	}{
		{name: "in another order", status: http.StatusOK, answers: []carriedAnswer{ok(1), ok(0)}, want: [2]int{200, 200}},
		{name: "one is missing", status: http.StatusOK, answers: []carriedAnswer{ok(1)}, want: [2]int{0, 200}, wantErrs: [2]error{io.ErrUnexpectedEOF, nil}},
		{
			name: "one is refused", status: http.StatusOK, answers: []carriedAnswer{{Call: 0, Status: http.StatusMisdirectedRequest}, ok(1)},
			want: [2]int{http.StatusMisdirectedRequest, 200},
		},
		{name: "all are refused", status: http.StatusMisdirectedRequest, want: [2]int{http.StatusMisdirectedRequest, http.StatusMisdirectedRequest}},
		{name: "of another call", status: http.StatusOK, answers: []carriedAnswer{ok(0), ok(2)}, want: [2]int{200, 0}, wantErrs: [2]error{nil, errAnswer}},
		{name: "twice", status: http.StatusOK, answers: []carriedAnswer{ok(0), ok(0)}, want: [2]int{200, 0}, wantErrs: [2]error{nil, errAnswer}},
		{name: "lost", err: lost, wantErrs: [2]error{lost, lost}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				open := make(chan struct{})
				c, _ := newTestCarriers(func(_ context.Context, calls []carriedCall) (int, []carriedAnswer, error) {
					if len(calls) == 1 {
						<-open
						return echo(0)(t.Context(), calls)
					}
					return tt.status, tt.answers, tt.err
				})
				first := put(t, c, "first")
				synctest.Wait()
				both := []*parcel{put(t, c, "one"), put(t, c, "two")}
				close(open)
				wantEcho(t, first)
				for i, p := range both {
					a := <-p.answers
					if a.status != tt.want[i] || !errors.Is(a.err, tt.wantErrs[i]) {
						t.Errorf("call %d: got %d, error %v, want %d, %v", i, a.status, a.err, tt.want[i], tt.wantErrs[i])
					}
				}
			})
		})
	}
}

func TestCarriers_closed(t *testing.T) {
	c, _ := newTestCarriers(echo(0))
	c.engine.closed = true
	if c.put("n1", &parcel{verb: "echo"}) {
		t.Error("a closed engine took a call")
	}
}

// newTestHandler returns a handler with calls of its own.
func newTestHandler(calls map[string]peerCall) *PeerHandler {
	return &PeerHandler{engine: &Engine{wire: newWire(), log: slog.New(slog.DiscardHandler)}, calls: calls}
}

// Calls that came together are answered one by one, as soon as each is, and fail
// one by one.
func TestPeerHandler_carry(t *testing.T) {
	open := make(chan struct{})
	p := newTestHandler(map[string]peerCall{
		"quick": func(_ context.Context, left time.Duration, body []byte) (int, []byte) {
			return http.StatusOK, fmt.Appendf(nil, "%s %v", body, left)
		},
		"slow": func(context.Context, time.Duration, []byte) (int, []byte) {
			<-open
			return http.StatusOK, []byte("slow")
		},
		"panics": func(context.Context, time.Duration, []byte) (int, []byte) { panic("on purpose") },
		"refuse": func(context.Context, time.Duration, []byte) (int, []byte) { return http.StatusMisdirectedRequest, nil },
	})
	server := httptest.NewServer(http.HandlerFunc(p.carry))
	defer server.Close()
	body, err := p.engine.wire.encode([]carriedCall{
		{Verb: "slow", TimeLeft: 1},
		{Verb: "quick", TimeLeft: 2000, Body: []byte("one")},
		{Verb: "panics"},
		{Verb: "refuse"},
		{Verb: "unknown"},
		{Verb: "quick", TimeLeft: -1},
	})
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post(server.URL, callMediaType, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	d := p.engine.wire.answers.NewDecoder(res.Body)
	got := make(map[uint32]carriedAnswer)
	read := func() {
		t.Helper()
		var a carriedAnswer
		if err := d.Decode(&a); err != nil {
			t.Fatal(err)
		}
		got[a.Call] = a
	}
	for range 5 {
		read() // while one is not answered
	}
	close(open)
	read()
	want := map[uint32]carriedAnswer{
		0: {Call: 0, Status: http.StatusOK, Body: []byte("slow")},
		1: {Call: 1, Status: http.StatusOK, Body: []byte("one 2ms")},
		2: {Call: 2, Status: http.StatusInternalServerError},
		3: {Call: 3, Status: http.StatusMisdirectedRequest},
		4: {Call: 4, Status: http.StatusNotFound},
		5: {Call: 5, Status: http.StatusBadRequest},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b carriedAnswer) bool {
		return a.Call == b.Call && a.Status == b.Status && bytes.Equal(a.Body, b.Body)
	})); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if err := d.Decode(new(carriedAnswer)); !errors.Is(err, io.EOF) {
		t.Errorf("after all answers: error %v, want %v", err, io.EOF)
	}
}

// What cannot be read was certainly not applied.
func TestPeerHandler_carry_unreadable(t *testing.T) {
	p := newTestHandler(nil)
	w := httptest.NewRecorder()
	p.carry(w, httptest.NewRequest(http.MethodPost, callsPath+carryVerb, bytes.NewReader([]byte("no list"))))
	if w.Code != http.StatusBadRequest {
		t.Errorf("got %d, want %d", w.Code, http.StatusBadRequest)
	}
}

// A caller gives up in the moment in which the engine closes, with its call still
// in the queue.
func TestCarriers_closedInQueue(t *testing.T) {
	c, _ := newTestCarriers(echo(0))
	c.to["n1"] = &carrier{busy: true} // the batch before is on its way
	p := &parcel{verb: "acquire"}
	if !c.put("n1", p) {
		t.Fatal("the call was not taken")
	}
	c.engine.mu.Lock()
	c.engine.closed = true
	c.engine.mu.Unlock()
	c.next("n1")
	if a := c.giveUp("n1", p, context.Canceled); !isNotSent(a.err) {
		t.Errorf("answered %v, want an error that says that nothing was sent", a.err)
	}
}
