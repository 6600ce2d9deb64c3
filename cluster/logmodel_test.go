package cluster

import (
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

// logModel is what a log must have: what was acknowledged, and after a restart
// perhaps what was tried.
type logModel struct {
	t     testing.TB
	rand  *rand.Rand
	disk  *faults
	files *logFiles
	log   *logStore
	trace []string

	extent
	data    map[uint64]string
	next    uint64   // the index of the next entry
	tried   uint64   // counts entries, so that no two are alike
	cut     []extent // what deletions that failed would have left
	pending map[uint64][]string
}

func newLogModel(tb testing.TB, seed int64) *logModel {
	tb.Helper()
	m := &logModel{t: tb, rand: rand.New(rand.NewSource(seed)), disk: newFaults(seed), next: 1, data: map[uint64]string{}, pending: map[uint64][]string{}}
	m.files = m.disk.log(tb)
	m.open()
	return m
}

func (m *logModel) logf(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *logModel) fatalf(format string, args ...any) {
	m.t.Helper()
	for _, line := range m.trace {
		m.t.Log(line)
	}
	m.t.Fatalf(format, args...)
}

func (m *logModel) open() {
	var err error
	if m.log, err = newLogStore(m.files); err != nil {
		m.fatalf("open: %v", err)
	}
}

// step does one thing that raft does, or that happens to it.
func (m *logModel) step() {
	prob, left := 0.0, -1
	switch m.rand.Intn(6) {
	case 0, 1:
		prob = 0.2
	case 2:
		left = m.rand.Intn(8)
	}
	m.disk.plan(prob, left)
	switch op := m.rand.Intn(20); {
	case op < 14 || op < 19 && m.last == 0:
		m.store()
	case op < 19:
		m.delete()
	default:
		m.restart()
		return
	}
	if _, dead := m.disk.state(); dead {
		m.restart()
		return
	}
	m.check()
}

func (m *logModel) store() {
	at := m.next
	if m.last == 0 && m.rand.Intn(3) == 0 {
		at += uint64(m.rand.Intn(500))
	}
	size := 1 + m.rand.Intn(150)
	if m.rand.Intn(10) == 0 {
		size = 1 + m.rand.Intn(3000) // larger than a segment together
	}
	var entries []*raft.Log
	for i := range 1 + uint64(m.rand.Intn(4)) {
		m.tried++
		data := fmt.Sprintf("%08d%*s", m.tried, m.rand.Intn(size), "")
		entries = append(entries, &raft.Log{Index: at + i, Term: 1, Data: []byte(data)})
	}
	err := m.log.StoreLogs(entries)
	m.logf("store %d to %d: %v", at, at+uint64(len(entries))-1, err)
	if m.failed(err) {
		for _, e := range entries {
			m.pending[e.Index] = append(m.pending[e.Index], string(e.Data))
		}
		return
	}
	for _, e := range entries {
		m.data[e.Index] = string(e.Data)
	}
	if m.first == 0 {
		m.first = at
	}
	m.last = entries[len(entries)-1].Index
	m.next = m.last + 1
}

func (m *logModel) delete() {
	first, last := m.first, m.last
	left := extent{}
	switch m.rand.Intn(5) {
	case 0, 1:
		last = first + uint64(m.rand.Intn(int(m.last-m.first+1)))
		left = extent{last + 1, m.last}
	case 2, 3:
		first += uint64(m.rand.Intn(int(m.last - m.first + 1)))
		left = extent{m.first, first - 1}
	}
	if first == m.first && last == m.last {
		left = extent{}
	}
	err := m.log.DeleteRange(first, last)
	m.logf("delete %d to %d of %v: %v", first, last, m.extent, err)
	if m.failed(err) {
		m.cut = append(m.cut, left)
		return
	}
	m.extent = left
	m.next = max(left.last, first-1, 0) + 1
	if left == (extent{}) {
		m.next = last + 1
	}
}

// failed returns whether a change failed. One that nothing disturbs must not,
// whatever came before; and what was tried before one that did not is settled.
func (m *logModel) failed(err error) bool {
	m.t.Helper()
	hits, dead := m.disk.state()
	if err != nil {
		if hits == 0 && !dead {
			m.fatalf("a change failed on a disk without faults: %v", err)
		}
		return true
	}
	clear(m.pending)
	m.cut = nil
	// Waits for what raft-wal does in the background, so that a seed is a history.
	if err := m.log.DeleteRange(1<<62, 1<<62); err != nil {
		m.fatalf("delete nothing: %v", err)
	}
	return false
}

// restart opens the log again. What it has then counts as acknowledged.
func (m *logModel) restart() {
	cut := m.rand.Intn(2) == 0
	_ = m.log.Close() // the disk may be dead
	m.disk.restart(m.t, cut)
	m.open()
	got, err := extentOf(m.log.log)
	m.logf("restart, power cut %t: %v, %v, was %v", cut, got, err, m.extent)
	if err != nil || !slices.ContainsFunc(append(m.cut, m.extent), func(want extent) bool { return m.explains(want, got) }) {
		m.fatalf("after a restart the log has %v, %v; want %v or one of %v, and perhaps entries that were tried: %v", got, err, m.extent, m.cut, m.pending)
	}
	for i := max(m.last+1, got.first, 1); i <= got.last; i++ {
		m.data[i] = m.read(i)
	}
	m.extent = got
	if got.last > 0 {
		m.next = got.last + 1
	}
	clear(m.pending)
	m.cut = nil
	m.check()
}

// explains reports whether a log with the entries want, and some that were
// tried, is got.
func (m *logModel) explains(want, got extent) bool {
	if want.last > 0 && (got.first != want.first || got.last < want.last) {
		return false
	}
	for i := got.first; i > 0 && i <= got.last; i++ {
		if data := m.read(i); (i > want.last || data != m.data[i]) && !slices.Contains(m.pending[i], data) {
			return false
		}
	}
	return true
}

func (m *logModel) read(index uint64) string {
	var entry raft.Log
	if err := m.log.GetLog(index, &entry); err != nil {
		m.fatalf("entry %d: %v", index, err)
	}
	return string(entry.Data)
}

// check compares the log with what it must have.
func (m *logModel) check() {
	first, errFirst := m.log.FirstIndex()
	last, errLast := m.log.LastIndex()
	if err := errors.Join(errFirst, errLast); err != nil || (extent{first, last}) != m.extent {
		m.fatalf("the log has %d to %d, %v, want %v", first, last, err, m.extent)
	}
	for i := first; i > 0 && i <= last; i++ {
		if got := m.read(i); got != m.data[i] {
			m.fatalf("entry %d is %.8q, want %.8q", i, got, m.data[i])
		}
	}
}

func runLogModel(tb testing.TB, seed int64) {
	tb.Helper()
	m := newLogModel(tb, seed)
	for range 60 {
		m.step()
	}
	m.restart()
	if err := m.log.Close(); err != nil {
		tb.Error(err)
	}
}

// TestLogStore_model: whatever fails, whenever the process is killed or the
// power is cut, the log has what was acknowledged, without holes, and goes on.
func TestLogStore_model(t *testing.T) {
	for seed := range int64(80) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runLogModel(t, seed) })
	}
}

// FuzzLogStore is TestLogStore_model with other seeds.
func FuzzLogStore(f *testing.F) {
	f.Add(int64(1000))
	f.Fuzz(func(t *testing.T, seed int64) { runLogModel(t, seed) })
}
