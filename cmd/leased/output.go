package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"leased/client"
	"leased/gateway/api"
)

// block is a headline with aligned "name: value" lines below it.
type block struct {
	headline string
	lines    [][2]string
}

// add adds a line, unless there is nothing to say.
func (b *block) add(name, value string) {
	if value != "" {
		b.lines = append(b.lines, [2]string{name, value})
	}
}

func (b *block) print(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintln(&text, b.headline)
	for _, line := range b.lines {
		fmt.Fprintf(&text, "  %s:\t%s\n", line[0], line[1])
	}
	return align(w, text.String())
}

// align writes text with its tabs made into columns.
func align(w io.Writer, text string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(t, text); err != nil {
		return err
	}
	return t.Flush()
}

// printJSON prints v as the API would answer it.
func printJSON(e *env, v any) error {
	if err := json.MarshalWrite(e.stdout, v, jsontext.WithIndent("  "), json.Deterministic(true)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(e.stdout)
	return err
}

// jsonAnswer is the API's answer with the request id, which the API returns in
// a header.
type jsonAnswer struct {
	api.LeaseReply
	RequestID string `json:"request_id"`
}

func (f *clientFlags) printAnswer(got *client.Answer) error {
	if f.json {
		return printJSON(f.env, jsonAnswer{
			LeaseReply: api.LeaseReply{Outcome: got.Outcome, Lease: got.Lease, Replayed: got.Replayed}, RequestID: got.RequestID,
		})
	}
	headline := got.Outcome
	if got.Replayed {
		headline += " (replayed: the request id had this answer before)"
	}
	return printLease(f.env, headline, got.Lease)
}

func printLease(e *env, headline string, l *api.Lease) error {
	b := block{headline: headline}
	b.add("lease", clean(l.LeaseID))
	b.add("token", strconv.FormatUint(l.Token, 10))
	b.add("key", keyText(l.Key))
	b.add("key id", clean(l.KeyID))
	b.add("namespace", clean(l.Namespace))
	b.add("holder", clean(l.Owner)+", instance "+clean(l.Instance))
	b.add("acquired", instant(l.AcquiredAt))
	if l.Renewals > 0 {
		b.add("renewed", fmt.Sprintf("%s, %s", instant(l.RenewedAt), times(l.Renewals)))
	}
	if l.EndedAt.IsZero() {
		b.add("expires", fmt.Sprintf("in %s, %s", milliseconds(l.ExpiresInMS), instant(l.ExpiresAt)))
	} else {
		b.add("ended", ending(l))
	}
	b.add("ttl", fmt.Sprintf("%s, of at most %s in all", milliseconds(l.TTLMS), milliseconds(l.MaxLifetimeMS)))
	b.add("job", clean(l.JobID))
	b.add("execution", clean(l.ExecutionID))
	b.add("trace", clean(l.TraceID))
	var meta []string
	for _, name := range slices.Sorted(maps.Keys(l.Metadata)) {
		meta = append(meta, clean(name)+"="+clean(l.Metadata[name]))
	}
	b.add("metadata", strings.Join(meta, " "))
	return b.print(e.stdout)
}

// ending says how a lease ended.
func ending(l *api.Lease) string {
	text := l.State + " " + instant(l.EndedAt)
	if l.EndedBy != "" {
		text += ", by " + clean(l.EndedBy)
	}
	if l.Reason != "" {
		text += ": " + clean(l.Reason)
	}
	return text
}

func printLeases(e *env, leases []*api.Lease, more bool) error {
	t := newTable("LEASE", "TOKEN", "STATE", "OWNER", "INSTANCE", "KEY", "ENDS", "JOB")
	for _, l := range leases {
		ends := "in " + milliseconds(l.ExpiresInMS)
		if !l.EndedAt.IsZero() {
			ends = instant(l.EndedAt)
		}
		t.row(clean(l.LeaseID), strconv.FormatUint(l.Token, 10), l.State, clean(l.Owner), clean(l.Instance), keyText(l.Key), ends, clean(l.JobID))
	}
	return t.print(e.stdout, len(leases), "lease", more)
}

func printEvents(e *env, events []api.Event, more bool) error {
	t := newTable("TIME", "EVENT", "TOKEN", "OWNER", "INSTANCE", "BY", "JOB", "LEASE", "REASON")
	for i := range events {
		v := &events[i]
		t.row(instant(v.At), v.Event, strconv.FormatUint(v.Token, 10), clean(v.Owner), clean(v.Instance),
			clean(v.Principal), clean(v.JobID), clean(v.LeaseID), clean(v.Reason))
	}
	return t.print(e.stdout, len(events), "event", more)
}

// table prints aligned columns; an empty cell is "-", so that cut and awk count
// the same columns in each line.
type table struct {
	text strings.Builder
}

func newTable(columns ...string) *table {
	t := &table{}
	t.row(columns...)
	return t
}

func (t *table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = orDash(cell)
	}
	fmt.Fprintln(&t.text, strings.Join(cells, "\t"))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// print prints the table and how many rows it has.
func (t *table) print(w io.Writer, n int, what string, more bool) error {
	if err := align(w, t.text.String()); err != nil {
		return err
	}
	if n != 1 {
		what += "s"
	}
	rest := ""
	if more {
		rest = "; there are more, see --limit"
	}
	_, err := fmt.Fprintf(w, "\n%d %s%s\n", n, what, rest)
	return err
}

func keyText(k api.Key) string { return clean(k.Contract().Canonical()) }

// clean returns text that came from somebody else in a form that cannot move
// the cursor, colour the terminal or fake a line of this program's output.
func clean(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

func instant(t api.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// milliseconds returns a duration as a person would say it.
func milliseconds(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d >= time.Minute:
		d = d.Truncate(time.Second)
	case d >= 10*time.Second:
		d = d.Truncate(100 * time.Millisecond)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return strconv.FormatUint(n, 10) + " times"
}
