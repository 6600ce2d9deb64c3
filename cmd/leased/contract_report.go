package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jstemmer/go-junit-report/v2/junit"

	"leased/contract/contracttest"
)

// contractReport tells of each rule as it ends, and of all of them at the end.
type contractReport struct {
	env     *env
	subject *subject
	began   time.Time
	of      int

	mu       sync.Mutex
	restarts bool
	done     int
	broken   []string // ids of rules that do not hold
	unrun    int      // rules that did not run to their end
	dropped  []string // ids of rules that dropped connections in place of a restart
	cases    []junit.Testcase
	left     string // what could not be removed
}

func newContractReport(e *env, s *subject, of int) *contractReport {
	return &contractReport{env: e, subject: s, began: e.now(), of: of}
}

// print writes to standard output, from any goroutine that holds mu. That nobody
// reads it is no reason to stop half-way: the exit code says it too.
func (r *contractReport) print(format string, args ...any) {
	_, _ = fmt.Fprintf(r.env.stdout, format, args...)
}

// ready says that the store can serve.
func (r *contractReport) ready(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.print("%s is ready (%s)\n", r.subject.shown, milliseconds(took.Milliseconds()))
}

// begin says what follows.
func (r *contractReport) begin(s *openSubject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restarts = s.restarts
	r.print("holding it to %d rules\n\n", r.of)
}

// add tells of a rule that was run.
func (r *contractReport) add(got contracttest.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	mark, note := "ok", ""
	if got.Failed {
		mark = "FAIL"
		r.broken = append(r.broken, got.Rule.ID)
	}
	if got.Rule.Reopens && !r.restarts {
		note = "  (connections dropped, server not restarted)"
		r.dropped = append(r.dropped, got.Rule.ID)
	}
	r.print("%*d/%d  %-4s  %s  %s%s\n", len(fmt.Sprint(r.of)), r.done, r.of, mark, got.Rule.ID, milliseconds(got.Took.Milliseconds()), note)
	test := junit.Testcase{Name: got.Rule.ID, Classname: "leased.contract." + r.subject.kind, Time: seconds(got.Took)}
	if note != "" {
		test.SystemOut = &junit.Output{Data: "The server was not restarted: every connection was dropped and renewed in place of it."}
	}
	if got.Failed {
		text := fmt.Sprintf("The rule: %s\n\n%s", got.Rule.Sentence, strings.Join(append(got.Failures, got.Logs...), "\n"))
		r.print("%s\n", indent(text))
		test.Failure = &junit.Result{Message: printable(first(got.Failures)), Type: "broken", Data: printable(text)}
	}
	r.cases = append(r.cases, test)
}

// notRun tells of rules that were not run to their end: they are not known to hold.
func (r *contractReport) notRun(rules []contracttest.Rule, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unrun += len(rules)
	for _, rule := range rules {
		r.cases = append(r.cases, junit.Testcase{
			Name: rule.ID, Classname: "leased.contract." + r.subject.kind, Time: seconds(0),
			Error: &junit.Result{Message: "not run to its end: " + why, Type: "not run", Data: rule.Sentence},
		})
	}
}

// leftBehind says that the suite could not remove what it wrote.
func (r *contractReport) leftBehind(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = fmt.Sprintf("what the suite wrote could not be removed: %v", err)
	r.print("%s\n", r.left)
}

// end sums up, and returns a brokenError unless every rule ran to its end and holds. What
// was not run to its end is not known to hold.
func (r *contractReport) end() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.print("\n%d rules, %d hold, %d do not, %d were not run to their end, in %s\n",
		r.of, r.of-len(r.broken)-r.unrun, len(r.broken), r.unrun, r.env.now().Sub(r.began).Round(100*time.Millisecond))
	if len(r.dropped) > 0 {
		r.print("A restart of the server was not part of it. In its place these rules dropped every\nconnection and connected again: %s.\n",
			strings.Join(r.dropped, ", "))
	}
	if len(r.broken) > 0 {
		r.print("These do not hold: %s.\n", strings.Join(r.broken, ", "))
	}
	if len(r.broken)+r.unrun == 0 {
		return nil
	}
	return &brokenError{broken: len(r.broken), unrun: r.unrun, of: r.of}
}

// writeJUnit writes the report in the form that continuous integration reads.
func (r *contractReport) writeJUnit(w io.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	suite := junit.Testsuite{Name: "leased contract " + r.subject.kind, Time: seconds(r.env.now().Sub(r.began))}
	suite.SetTimestamp(r.began)
	suite.AddProperty("backend", r.subject.shown)
	suite.AddProperty("leased.version", r.env.version)
	suite.AddProperty("server.restarted", fmt.Sprint(r.restarts))
	for _, test := range r.cases {
		suite.AddTestcase(test)
	}
	if r.left != "" {
		suite.SystemErr = &junit.Output{Data: printable(r.left)}
	}
	suites := junit.Testsuites{Name: "leased contract", Time: suite.Time}
	suites.AddSuite(suite)
	if _, err := io.WriteString(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"); err != nil {
		return err
	}
	return suites.WriteXML(w)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

func first(texts []string) string {
	if len(texts) == 0 {
		return "it failed without a word"
	}
	line, _, _ := strings.Cut(texts[0], "\n")
	return line
}

func indent(text string) string {
	return "        " + strings.ReplaceAll(printable(text), "\n", "\n        ")
}

// printable replaces what neither a terminal nor XML may be given: rules show
// the keys and texts that they tried, control characters included.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return c
		case c < ' ' || c == 0x7f || c == utf8.RuneError || c == 0xfffe || c == 0xffff:
			return '\uFFFD'
		}
		return c
	}, text)
}
