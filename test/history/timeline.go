package history

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

//go:embed timeline.html
var timelinePage string

// Sizes in the timeline, in pixels.
const (
	perSecond = 120
	rowHeight = 14
	margin    = 70 // left, for names
)

// bar is something that lasts, in a row of a key.
type bar struct {
	X, Y, Width float64
	Class, Says string
}

// label names a row.
type label struct {
	Y    float64
	Name string
}

type keyTimeline struct {
	Name   string
	Height float64
	Labels []label
	Bars   []bar
}

// timeline is what the page shows.
type timeline struct {
	Title      string
	Width      float64
	Violations []Violation
	Faults     []bar
	Seconds    []label
	Marks      []bar
	Keys       []keyTimeline
}

// Timeline writes a page that shows the history as it went: for each key who held it,
// and what each client asked for and was told.
func (h *History) Timeline(w io.Writer, title string, bad []Violation) error {
	page, err := template.New("timeline").Parse(timelinePage)
	if err != nil {
		return err
	}
	from, to := h.span()
	x := func(ns int64) float64 { return margin + float64(ns-from)/1e9*perSecond }
	lasting := func(a, b int64) (at, width float64) { return x(a), max(2, x(min(b, to))-x(a)) }
	t := timeline{Title: title, Width: x(to) + margin, Violations: bad}
	for _, f := range h.Faults {
		at, width := lasting(f.FromNS, f.ToNS)
		t.Faults = append(t.Faults, bar{X: at, Width: width, Says: f.Name})
	}
	for ns := from; ns < to; ns += 1e9 {
		t.Seconds = append(t.Seconds, label{Y: x(ns), Name: fmt.Sprintf("%d s", (ns-from)/1e9)})
	}
	for _, v := range bad {
		if v.AtNS != 0 {
			t.Marks = append(t.Marks, bar{X: x(v.AtNS), Says: v.String()})
		}
	}
	leases := h.leases()
	for _, key := range h.Keys() {
		t.Keys = append(t.Keys, h.keyTimeline(key, leases, lasting, to))
	}
	return page.Execute(w, t)
}

// span is from the first call to the last answer.
func (h *History) span() (from, to int64) {
	from = never
	for i := range h.Ops {
		from, to = min(from, h.Ops[i].CalledNS), max(to, h.Ops[i].ReturnedNS, h.Ops[i].CalledNS)
	}
	return from, to
}

func (h *History) keyTimeline(key string, leases map[string]*lease, lasting func(a, b int64) (x, width float64), to int64) keyTimeline {
	k := keyTimeline{Name: key, Labels: []label{{rowHeight, "holder"}}}
	for _, l := range leases {
		if from, until := l.told(); l.key == key && until > 0 {
			at, width := lasting(from, until)
			k.Bars = append(k.Bars, bar{at, 1, width, "lease", fmt.Sprintf("token %d, %s, %s", l.token, l.instance, l.id)})
		}
	}
	rows := map[string]float64{}
	for _, name := range h.clientsOf(key) {
		rows[name] = float64(len(rows)+1) * rowHeight
		k.Labels = append(k.Labels, label{rows[name] + rowHeight - 3, name})
	}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Key != key {
			continue
		}
		end := o.ReturnedNS
		if end == 0 {
			end = to
		}
		at, width := lasting(o.CalledNS, end)
		k.Bars = append(k.Bars, bar{at, rows[o.Client] + 1, width, o.class(), o.String()})
	}
	k.Height = float64(len(rows)+1)*rowHeight + 4
	return k
}

// told is the time in which a holder was told that it has the lease.
func (l *lease) told() (from, until int64) {
	from = never
	for _, o := range append(slices.Clone(l.acquires), l.uses...) {
		if o.done() && o.Verb != Release {
			from, until = min(from, o.ReturnedNS), max(until, o.CalledNS+o.Answer.ExpiresInMS*millisecond)
		}
	}
	for _, o := range append(slices.Clone(l.uses), l.revokes...) {
		if o.Answer.Outcome == Released || o.Answer.Outcome == Revoked {
			until = min(until, o.ReturnedNS)
		}
	}
	return from, until
}

func (h *History) clientsOf(key string) []string {
	var names []string
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Key == key && !slices.Contains(names, o.Client) {
			names = append(names, o.Client)
		}
	}
	slices.Sort(names)
	return names
}

// class is how the call is painted.
func (o *Op) class() string {
	switch {
	case o.done():
		return "done " + o.Verb
	case o.unknown():
		return "unknown"
	case o.certainlyNot():
		return "not"
	}
	return "refused"
}

// String says what was asked and what was answered.
func (o *Op) String() string {
	a := &o.Answer
	parts := []string{o.ID, o.Verb, "request " + o.Request}
	if o.Token != 0 {
		parts = append(parts, fmt.Sprint("token ", o.Token))
	}
	if o.WaitMS != 0 {
		parts = append(parts, fmt.Sprintf("wait %d ms", o.WaitMS))
	}
	parts = append(parts, "at "+o.Server, "→ "+cmp.Or(a.Outcome, "no answer"))
	if a.Replayed {
		parts = append(parts, "replayed")
	}
	if a.Token != 0 {
		parts = append(parts, fmt.Sprintf("token %d, %d ms left", a.Token, a.ExpiresInMS))
	}
	if a.Holder != "" {
		parts = append(parts, "held by "+a.Holder)
	}
	parts = append(parts, fmt.Sprintf("[%d to %d]", o.CalledNS, o.ReturnedNS))
	return strings.Join(parts, " ")
}
