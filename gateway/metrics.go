package gateway

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leased/contract"
	"leased/gateway/api"
)

// metrics are the gateway's. Every label is from a closed set: the configured
// namespaces and "unknown", the operations, the verdicts, the routes. A caller's
// text (a key, an owner, a path, a method) as a label is a series per caller.
type metrics struct {
	operations    *prometheus.CounterVec
	duration      *prometheus.HistogramVec
	conflicts     *prometheus.CounterVec
	renewFailures *prometheus.CounterVec
	expirations   *prometheus.CounterVec
	lateness      *prometheus.HistogramVec
	revocations   *prometheus.CounterVec
	stale         *prometheus.CounterVec
	httpRequests  *prometheus.CounterVec

	streams        *prometheus.GaugeVec
	streamsDropped *prometheus.CounterVec
	streamGaps     *prometheus.CounterVec
	streamEvents   *prometheus.CounterVec
}

const (
	labelNamespace = "namespace"
	labelOperation = "operation"
	labelOutcome   = "outcome"
	labelReason    = "reason"
)

func newMetrics(reg prometheus.Registerer, version string, dropped func() float64) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		operations: counter("leased_operations_total",
			"Operations by how they ended. Each lease of a bulk renewal counts as a renew, the call as a renew_bulk.",
			labelNamespace, labelOperation, labelOutcome),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "leased_operation_duration_seconds",
			Help:    "How long operations took, the wait of an acquire included, reading the request and writing the reply not.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 300},
		}, []string{labelNamespace, labelOperation}),
		conflicts:     counter("leased_conflicts_total", "Acquires refused because another lease held the key.", labelNamespace),
		renewFailures: counter("leased_renew_failures_total", "Renewals that did not renew, by why.", labelNamespace, labelReason),
		expirations:   counter("leased_expirations_total", "Leases that ended because nobody renewed them.", labelNamespace),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "leased_expiration_lateness_seconds",
			Help:    "How long after a lease's end its expiry was recorded.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{labelNamespace}),
		revocations:  counter("leased_revocations_total", "Leases that were revoked or force-released.", labelNamespace),
		stale:        counter("leased_stale_fence_rejections_total", "Checks, renewals and releases with a token that is not the current one.", labelNamespace),
		httpRequests: counter("leased_http_requests_total", "HTTP requests by route.", "method", "route", "status"),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leased_event_streams", Help: "Event streams that are open.",
		}, []string{labelNamespace}),
		streamsDropped: counter("leased_event_streams_dropped_total", "Event streams that were cut because their readers did not read.", labelNamespace),
		streamGaps:     counter("leased_event_gaps_total", "Times that a stream was told of events it could no longer be shown.", labelNamespace),
		streamEvents:   counter("leased_events_sent_total", "Events sent to streams, once for each stream.", labelNamespace),
	}
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "leased_build_info", Help: "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()},
	}, func() float64 { return 1 })
	lost := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "leased_audit_dropped_total", Help: "Audit events lost because the sink did not keep up or could not write.",
	}, dropped)
	for _, c := range []prometheus.Collector{
		m.operations, m.duration, m.conflicts, m.renewFailures, m.expirations, m.lateness,
		m.revocations, m.stale, m.httpRequests, m.streams, m.streamsDropped, m.streamGaps, m.streamEvents, build, lost,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("gateway: metrics: %w", err)
		}
	}
	return m, nil
}

// namespaceMetrics are the metrics of one namespace, looked up once: finding a
// child by its labels hashes them and takes a lock, on every request.
type namespaceMetrics struct {
	name        string
	parent      *metrics
	operations  [opCount][verdictCount]atomic.Pointer[prometheus.Counter]
	durations   [opCount]prometheus.Observer
	conflicts   prometheus.Counter
	expirations prometheus.Counter
	lateness    prometheus.Observer
	revocations prometheus.Counter
	stale       prometheus.Counter

	streams        prometheus.Gauge
	streamsDropped prometheus.Counter
	streamGaps     prometheus.Counter
	streamEvents   prometheus.Counter
}

func (m *metrics) namespace(name string) *namespaceMetrics {
	n := &namespaceMetrics{
		name: name, parent: m,
		conflicts:   m.conflicts.WithLabelValues(name),
		expirations: m.expirations.WithLabelValues(name),
		lateness:    m.lateness.WithLabelValues(name),
		revocations: m.revocations.WithLabelValues(name),
		stale:       m.stale.WithLabelValues(name),

		streams:        m.streams.WithLabelValues(name),
		streamsDropped: m.streamsDropped.WithLabelValues(name),
		streamGaps:     m.streamGaps.WithLabelValues(name),
		streamEvents:   m.streamEvents.WithLabelValues(name),
	}
	for op := opAcquire; op < opExpire; op++ {
		n.durations[op] = m.duration.WithLabelValues(name, op.String())
		for _, code := range []api.Code{api.CodeUnavailable, api.CodeOutcomeUnknown} {
			n.operation(op, verdictOfCode(code))
		}
	}
	for _, v := range renewFailures() {
		m.renewFailures.WithLabelValues(name, v.String())
	}
	return n
}

// renewFailures returns how renewals end that do not renew. These are counted from
// 0, as is what operators are told to be alerted by: of a series that begins with
// its first failure no rate sees that one.
func renewFailures() []verdict {
	all := []verdict{
		verdict(contract.OutcomeNotFound), verdict(contract.OutcomeNotOwner), verdict(contract.OutcomeStaleToken),
		verdict(contract.OutcomeEndedExpired), verdict(contract.OutcomeEndedReleased), verdict(contract.OutcomeEndedRevoked),
		verdict(contract.OutcomeRequestIDReused),
	}
	for _, code := range []api.Code{
		api.CodeInvalid, api.CodeDenied, api.CodeUnavailable, api.CodeTimeout, api.CodeOutcomeUnknown, api.CodeClosed, api.CodeInternal,
	} {
		all = append(all, verdictOfCode(code))
	}
	return all
}

// count counts one operation. took is negative for what has no duration of its
// own, as one lease of a bulk renewal.
func (n *namespaceMetrics) count(op operation, v verdict, replayed bool, took time.Duration) {
	n.operation(op, v).Inc()
	if took >= 0 {
		n.durations[op].Observe(took.Seconds())
	}
	switch {
	case v == verdict(contract.OutcomeConflict):
		n.conflicts.Inc()
	case v == verdict(contract.OutcomeStaleToken):
		n.stale.Inc()
	case v == verdict(contract.OutcomeRevoked) && !replayed:
		n.revocations.Inc()
	}
	if (op == opRenew || op == opRenewBulk) && !v.ok() {
		n.parent.renewFailures.WithLabelValues(n.name, v.String()).Inc()
	}
}

// operation returns the counter of one ending, made when it is first needed:
// most of the combinations never happen and would be series of zeros.
func (n *namespaceMetrics) operation(op operation, v verdict) prometheus.Counter {
	slot := &n.operations[op][v]
	if c := slot.Load(); c != nil {
		return *c
	}
	c := n.parent.operations.WithLabelValues(n.name, op.String(), v.String())
	slot.Store(&c)
	return c
}

// routeMetrics counts the requests of one route by status.
type routeMetrics struct {
	parent        *metrics
	method, route string
	statuses      [statusSlots]atomic.Pointer[prometheus.Counter]
}

const (
	firstStatus = 100
	statusSlots = 500
)

func (m *metrics) route(method, path string) *routeMetrics {
	return &routeMetrics{parent: m, method: method, route: path}
}

func (r *routeMetrics) count(status int) {
	if status < firstStatus || status >= firstStatus+statusSlots {
		status = 500 // none of ours; a counter is no place to panic
	}
	slot := &r.statuses[status-firstStatus]
	c := slot.Load()
	if c == nil {
		made := r.parent.httpRequests.WithLabelValues(r.method, r.route, strconv.Itoa(status))
		c = &made
		slot.Store(c)
	}
	(*c).Inc()
}

// storeGauges shows what the stores count. A scrape looks at a store at most
// once in healthAge and never waits longer than healthTimeout: metrics are
// needed most when a store is dead.
type storeGauges struct {
	namespaces []*namespace
	ready      *prometheus.Desc
	active     *prometheus.Desc
	waiters    *prometheus.Desc
}

func registerStoreGauges(reg prometheus.Registerer, namespaces []*namespace) error {
	labels := []string{labelNamespace}
	g := &storeGauges{
		namespaces: namespaces,
		ready:      prometheus.NewDesc("leased_namespace_ready", "1 if the namespace's store serves, else 0.", labels, nil),
		active:     prometheus.NewDesc("leased_active_leases", "Leases that are active. Absent while the store does not answer.", labels, nil),
		waiters:    prometheus.NewDesc("leased_waiters", "Requests that wait for a key. Absent while the store does not answer.", labels, nil),
	}
	if err := reg.Register(g); err != nil {
		return fmt.Errorf("gateway: metrics: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (g *storeGauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.ready
	ch <- g.active
	ch <- g.waiters
}

// Collect implements prometheus.Collector. A number that the store did not give
// is left out: the last one known would look like the truth.
func (g *storeGauges) Collect(ch chan<- prometheus.Metric) {
	for i, h := range healthOf(context.Background(), g.namespaces, healthAge) {
		name := g.namespaces[i].Name
		if !h.Ready {
			ch <- prometheus.MustNewConstMetric(g.ready, prometheus.GaugeValue, 0, name)
			continue
		}
		ch <- prometheus.MustNewConstMetric(g.ready, prometheus.GaugeValue, 1, name)
		ch <- prometheus.MustNewConstMetric(g.active, prometheus.GaugeValue, float64(h.ActiveLeases), name)
		ch <- prometheus.MustNewConstMetric(g.waiters, prometheus.GaugeValue, float64(h.Waiters), name)
	}
}
