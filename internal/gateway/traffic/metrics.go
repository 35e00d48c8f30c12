package traffic

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/xbernetes/xbernetes/internal/gateway/backend"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
	"github.com/xbernetes/xbernetes/internal/gateway/endpoints"
)

// The labels that say whose limit refused a request.
const (
	byUser   = "user"
	byServer = "server"
)

// metrics have labels from closed sets only: registered servers and their
// endpoints, Kubernetes' verbs, HTTP's codes. Nothing that a caller or a server
// writes becomes a label unchecked.
type metrics struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	sent      *prometheus.CounterVec
	rejected  *prometheus.CounterVec
	failures  *prometheus.CounterVec
	retries   *prometheus.CounterVec
	ejections *prometheus.CounterVec
	up        *prometheus.GaugeVec
	underWay  *underWay
}

func newMetrics(namespace string) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	return &metrics{
		requests: counter("requests_total", "Requests that have ended. An empty server is this process itself.", "server", "verb", "code"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "request_duration_seconds", Help: "How long requests took, watches and streams apart.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"server", "verb"}),
		sent:      counter("sent_bytes_total", "Bytes of bodies sent to callers, upgraded streams apart.", "server"),
		rejected:  counter("rejected_total", "Requests refused by a limit, by whose limit and of which kind.", "server", "by", "kind"),
		failures:  counter("failures_total", "Requests that a server did not answer, by reason.", "server", "reason"),
		retries:   counter("retries_total", "Requests taken to another endpoint.", "server"),
		ejections: counter("ejections_total", "Times that an endpoint was set aside for failing requests.", "server", "endpoint"),
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "endpoint_healthy", Help: "1 if the endpoint passed its last health check, else 0.",
		}, []string{"server", "endpoint"}),
		underWay: &underWay{
			desc:    prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "under_way"), "Requests under way, by kind.", []string{"server", "kind"}, nil),
			targets: map[string]*target{},
		},
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.duration, m.sent, m.rejected, m.failures, m.retries, m.ejections, m.up, m.underWay}
}

// vectors are the metrics with a label for the server.
func (m *metrics) vectors() []*prometheus.MetricVec {
	return []*prometheus.MetricVec{
		m.requests.MetricVec, m.duration.MetricVec, m.sent.MetricVec, m.rejected.MetricVec, m.failures.MetricVec,
		m.retries.MetricVec, m.ejections.MetricVec, m.up.MetricVec,
	}
}

func (m *metrics) open(t *target) { m.underWay.set(t.name, t) }

// forget drops the metrics of a server. The caller holds the target's lock.
func (m *metrics) forget(server string) {
	m.underWay.set(server, nil)
	for _, v := range m.vectors() {
		v.DeletePartialMatch(prometheus.Labels{"server": server})
	}
}

// forgetEndpoint drops the metrics of an endpoint that a server no longer has.
func (m *metrics) forgetEndpoint(server, endpoint string) {
	m.ejections.DeleteLabelValues(server, endpoint)
	m.up.DeleteLabelValues(server, endpoint)
}

// count counts a request that has ended.
func (c *Control) count(r *http.Request, rec *recorder, note *call.Traffic, k kind, took time.Duration) {
	m, verb := c.metrics, verbOf(r)
	c.tell(note.Server, func() {
		m.requests.WithLabelValues(note.Server, verb, codeOf(rec.status())).Inc()
		m.sent.WithLabelValues(note.Server).Add(float64(rec.bytes))
		if k == short {
			m.duration.WithLabelValues(note.Server, verb).Observe(took.Seconds())
		}
		if note.RejectedBy != "" {
			m.rejected.WithLabelValues(note.Server, note.RejectedBy, string(k)).Inc()
		}
	})
}

// tell runs report, which uses a server's name as a label, unless the metrics of
// that server have ended. "" stands for the gateway itself, whose metrics never end.
func (c *Control) tell(server string, report func()) {
	if server == "" {
		report()
		return
	}
	c.mu.Lock()
	t := c.targets[server]
	c.mu.Unlock()
	if t != nil {
		t.tell(report)
	}
}

// Observe counts an event between the gateway and a server: it is meant for
// backend.Options. Call Limit for the server before its backend runs, because
// events of a server without a Limited are dropped.
func (c *Control) Observe(e backend.Event) {
	c.tell(e.Server, func() {
		switch m := c.metrics; e.Kind {
		case backend.Failed:
			m.failures.WithLabelValues(e.Server, string(e.Reason)).Inc()
		case backend.Retried:
			m.retries.WithLabelValues(e.Server).Inc()
		case backend.Ejected:
			m.ejections.WithLabelValues(e.Server, e.Endpoint).Inc()
		case backend.Checked:
			up := 0.0
			if e.State == endpoints.Healthy {
				up = 1
			}
			m.up.WithLabelValues(e.Server, e.Endpoint).Set(up)
		}
	})
}

var verbs = map[string]bool{
	"get": true, "list": true, "watch": true, "create": true, "update": true, "patch": true, "delete": true, "deletecollection": true,
	"proxy": true, "post": true, "put": true, "head": true, "options": true,
}

// verbOf returns Kubernetes' verb for a request, or "other" if there is none.
func verbOf(r *http.Request) string {
	if verb := call.Of(r).Info.Verb; verbs[verb] {
		return verb
	}
	return "other"
}

func codeOf(code int) string {
	if http.StatusText(code) == "" {
		return "other"
	}
	return strconv.Itoa(code)
}

// underWay is a metric that is read from the targets whenever it is collected.
type underWay struct {
	desc    *prometheus.Desc
	mu      sync.Mutex
	targets map[string]*target // by the server's name; guarded by mu
}

func (u *underWay) set(server string, t *target) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t == nil {
		delete(u.targets, server)
		return
	}
	u.targets[server] = t
}

// Describe implements prometheus.Collector.
func (u *underWay) Describe(ch chan<- *prometheus.Desc) { ch <- u.desc }

// Collect implements prometheus.Collector.
func (u *underWay) Collect(ch chan<- prometheus.Metric) {
	u.mu.Lock()
	targets := slices.Collect(maps.Values(u.targets))
	u.mu.Unlock()
	for _, t := range targets {
		for _, k := range []kind{short, stream} {
			ch <- prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, t.underWay(k), t.name, string(k))
		}
	}
}
