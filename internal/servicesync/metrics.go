package servicesync

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of all sites of a process. Labels are clusters, kinds and verbs;
// a Service is never a label, so the number of series stays small.
type metrics struct {
	propagation *prometheus.HistogramVec
	pass        *prometheus.HistogramVec
	writes      *prometheus.CounterVec
	sweeps      *prometheus.CounterVec
	holds       *prometheus.GaugeVec
	conflicts   *prometheus.GaugeVec
	kept        *prometheus.CounterVec
	migrations  *prometheus.CounterVec
	migrating   *prometheus.GaugeVec
	queue       *prometheus.GaugeVec
	lag         *prometheus.GaugeVec
	health      *prometheus.GaugeVec
	services    *prometheus.GaugeVec
	leading     *prometheus.GaugeVec
	rights      *prometheus.GaugeVec
}

// Stages of a change's way from one cluster to another.
const (
	// stagePublish: from when the change was noticed until it was published.
	stagePublish = "publish"
	// stageTransfer: from when the change was noticed in its cluster until the
	// publication was seen here. The two moments are read on two clocks.
	stageTransfer = "transfer"
	// stageImport: from when the publication was seen here until it was written.
	stageImport = "import"
	// stageTotal: from when the change was noticed in its cluster until it was written
	// here. The two moments are read on two clocks.
	stageTotal = "total"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	const namespace = "xb_servicesync"
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
		reg.MustRegister(g)
		return g
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
		reg.MustRegister(h)
		return h
	}
	return &metrics{
		propagation: histogram("propagation_seconds",
			"How long a change of an endpoint takes from one cluster to another, by stage. The stages transfer and total cross two clocks.",
			[]float64{.005, .01, .02, .04, .07, .1, .15, .2, .3, .5, .75, 1, 1.5, 2.5, 5, 10, 30, 60}, "cluster", "peer", "stage"),
		pass: histogram("pass_seconds", "How long deciding about one Service and writing what was decided took.",
			prometheus.ExponentialBuckets(.0001, 3, 11), "cluster"),
		writes:     counter("writes_total", "Writes, by what was written and whether it was done, was overtaken (conflict) or failed.", "cluster", "kind", "verb", "result"),
		sweeps:     counter("sweeps_total", "Objects that were removed because what they were made for is confirmed to be gone, or is in other slices.", "cluster", "kind"),
		holds:      gauge("handovers_held", "Migrations that wait for a gate.", "cluster"),
		conflicts:  gauge("conflicts", "Services in conflict, by reason.", "cluster", "reason"),
		kept:       counter("zero_endpoint_moments_avoided_total", "Times at which endpoints were kept in use because there would have been none.", "cluster"),
		migrations: counter("migrations_total", "Handovers of a Service, by the phase they reached.", "cluster", "phase"),
		migrating:  gauge("handovers", "Handovers under way, by phase.", "cluster", "phase"),
		queue:      gauge("queue_depth", "Services that wait, by lane.", "cluster", "lane"),
		lag:        gauge("peer_silence_seconds", "How long ago a peer was heard.", "cluster", "peer"),
		health:     gauge("peer_health", "1 for the state that a peer is in: Unknown, Live, Stale or Expired.", "cluster", "peer", "state"),
		services:   gauge("peer_services", "Services that a peer publishes, as they are seen here.", "cluster", "peer"),
		leading:    gauge("leading", "1 while this process works for the cluster.", "cluster"),
		rights:     gauge("rights_missing", "Rights that this controller needs and has not.", "cluster"),
	}
}

// forget drops the metrics of a peer that is no longer read.
func (m *metrics) forget(cluster, peer string) {
	labels := prometheus.Labels{"cluster": cluster, "peer": peer}
	for _, v := range []*prometheus.MetricVec{m.propagation.MetricVec, m.lag.MetricVec, m.health.MetricVec, m.services.MetricVec} {
		v.DeletePartialMatch(labels)
	}
}

func since(h prometheus.Observer, start, end time.Time) {
	h.Observe(max(0, end.Sub(start).Seconds()))
}
