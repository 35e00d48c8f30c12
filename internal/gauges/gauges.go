// Package gauges shows to Prometheus what a replica and the etcd API over it have
// counted. It counts nothing itself, and no label of it comes from outside this process.
package gauges

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/replica/stats"
)

// Server is what a Collector reads. Replica is required.
type Server struct {
	Replica *replica.Replica
	API     *etcdapi.Server   // nil: no watches are shown
	Woken   *notify.Woken     // nil: no notifications are shown
	Labels  prometheus.Labels // of xb_server_info, from this server's own flags
}

// Collector implements prometheus.Collector. Each family has a fixed set of labels.
type Collector struct{ server Server }

// New returns the collector of a server.
func New(s Server) *Collector { return &Collector{server: s} }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := sink{ch}
	r := c.server.Replica
	n := r.Counts()
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("xb_server_info", "This server, by the labels. The value is always 1.", nil, c.server.Labels), prometheus.GaugeValue, 1)
	s.calls(&n.Calls)
	s.requests(r, n)
	s.position(r, n, time.Now())
	s.upkeep(n)
	if c.server.API != nil {
		s.watches(c.server.API.Watches())
	}
	if c.server.Woken != nil {
		s.notifications(c.server.Woken.Counts())
	}
}

// sink takes metrics.
type sink struct{ ch chan<- prometheus.Metric }

func (s sink) calls(n *stats.Calls) {
	const appends, reads = "xb_journal_appends_total", "xb_journal_reads_total"
	const help = "Attempts to append a record, by outcome. unknown: the record may have landed, or may land later."
	s.labelled(appends, help, "outcome", &n.Stored, "stored")
	s.labelled(appends, help, "outcome", &n.Taken, "taken")
	s.labelled(appends, help, "outcome", &n.Ahead, "ahead")
	s.labelled(appends, help, "outcome", &n.Refused, "refused")
	s.labelled(appends, help, "outcome", &n.Unknown, "unknown")
	s.labelled(reads, "Attempts to read records, by outcome.", "outcome", &n.Answered, "answered")
	s.labelled(reads, "Attempts to read records, by outcome.", "outcome", &n.Failed, "failed")
	s.seconds("xb_journal_append_duration_seconds", "How long an attempt to append a record took.", n.AppendTime)
	s.seconds("xb_journal_read_duration_seconds", "How long an attempt to read records took.", n.ReadTime)
	s.counter("xb_journal_outages_total", "Outages that began, of the journal or of its writes alone.", &n.Outages)
}

func (s sink) requests(r *replica.Replica, n *stats.Replica) {
	const requests = "xb_requests_total"
	const help = "Requests of the etcd API that may write, by what the caller was told. unknown: it may have happened, or may happen later."
	s.labelled(requests, help, "outcome", &n.Requests.Applied, "applied")
	s.labelled(requests, help, "outcome", &n.Requests.Busy, "busy")
	s.labelled(requests, help, "outcome", &n.Requests.Unavailable, "unavailable")
	s.labelled(requests, help, "outcome", &n.Requests.Unknown, "unknown")
	s.labelled(requests, help, "outcome", &n.Requests.Refused, "refused")
	waiting, bytes := r.Waiting()
	s.gauge("xb_queue_requests", "Requests that wait to be put in a record.", float64(waiting))
	s.gauge("xb_queue_bytes", "Weight of the requests that wait to be put in a record.", float64(bytes))
	s.histogram("xb_record_requests", "Requests in each record of this server.", n.Batches.Requests, 1)
	s.histogram("xb_record_bytes", "Bytes of each record of this server.", n.Batches.Bytes, 1)
	s.counter("xb_records_again_total", "Records of this server that were sent again, because their slot was taken or they were void.", &n.Batches.Again)
	s.counter("xb_linearizable_reads_total", "Linearizable reads that asked the journal. Reads that wait share a question.", &n.ReadsAsked)
	s.counter("xb_lease_expiries_total", "Ends of leases that this server proposed.", &n.Expiries)
}

// position says how far the replica has got.
func (s sink) position(r *replica.Replica, n *stats.Replica, now time.Time) {
	applied, known := uint64(r.View().Slot()), n.Known.Load()
	s.gauge("xb_journal_applied_slot", "The last slot that this server has applied.", float64(applied))
	s.gauge("xb_journal_lag_slots", "Slots that are known to be held, or on their way there, and not applied yet.", float64(max(known, applied)-applied))
	lag := math.Inf(1)
	if at, ok := n.TailAt.Get(); ok {
		lag = max(0, now.Sub(at).Seconds())
		if r.Journal().Exclusive { // nobody else appends
			lag = 0
		}
	}
	s.gauge("xb_journal_lag_seconds", "How long ago this server last knew all that other servers had written; +Inf until it does.", lag)
	down, writes := 0.0, 0.0
	if o := r.Outage(); o != nil {
		down, writes = 1, 1
		if o.WritesOnly {
			down = 0
		}
	}
	s.gauge("xb_journal_unreadable", "1 while the journal does not answer.", down)
	s.gauge("xb_journal_unwritable", "1 while the journal takes no writes.", writes)
}

// upkeep shows snapshots, void records and trimming.
func (s sink) upkeep(n *stats.Replica) {
	const snapshots = "xb_snapshots_total"
	const help = "Snapshots of the state. hashed: computed to compare another server's."
	s.labelled(snapshots, help, "outcome", &n.Snapshots.Stored, "stored")
	s.labelled(snapshots, help, "outcome", &n.Snapshots.Failed, "failed")
	s.labelled(snapshots, help, "outcome", &n.Snapshots.Hashed, "hashed")
	s.counter("xb_snapshot_stored_bytes_total", "Bytes of the snapshots that were stored, compressed.", &n.Snapshots.Bytes)
	s.seconds("xb_snapshot_store_duration_seconds", "How long storing a snapshot took.", n.Snapshots.Time)
	const void = "xb_void_records_total"
	s.labelled(void, "Records that changed nothing, by reason.", "reason", &n.Void.Foreign, "foreign")
	s.labelled(void, "Records that changed nothing, by reason.", "reason", &n.Void.Malformed, "malformed")
	s.labelled(void, "Records that changed nothing, by reason.", "reason", &n.Void.Undecodable, "undecodable")
	s.gauge("xb_journal_floor_slot", "The first slot that is not given up for deletion, as far as this server has seen; 0 if it has seen no floor.", float64(n.Floor.Load()))
	s.counter("xb_trimmed_records_total", "Old records that this server deleted.", &n.Trim.Deleted)
	s.counter("xb_trim_failures_total", "Deletions of old records that failed.", &n.Trim.Failed)
}

func (s sink) watches(w etcdapi.Watches) {
	s.gauge("xb_watch_streams", "Open streams of watches.", float64(w.Streams))
	s.gauge("xb_watchers", "Watches in all streams.", float64(w.Watchers))
	s.gauge("xb_watchers_behind", "Watches that are still given history.", float64(w.Behind))
	s.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("xb_watch_events_total", "Events sent to watches.", nil, nil), prometheus.CounterValue, float64(w.Events))
}

// notifications shows what became of them. One can have several fates.
func (s sink) notifications(n notify.Counts) {
	desc := prometheus.NewDesc("xb_notifications_total",
		"Notifications of records, by fate. useless: the record did not turn up. lost: a record turned up of which none came. failed: the source went down.", []string{"fate"}, nil)
	for fate, count := range map[string]uint64{"received": n.Received, "woke": n.Woke, "late": n.Late, "useless": n.Useless, "lost": n.Lost, "failed": n.Failed} {
		s.ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(count), fate)
	}
}

func (s sink) gauge(name, help string, value float64) {
	s.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value)
}

func (s sink) counter(name, help string, n *stats.Count) {
	s.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, float64(n.Load()))
}

// labelled shows a counter of a family with one label.
func (s sink) labelled(name, help, label string, n *stats.Count, value string) {
	s.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{label}, nil), prometheus.CounterValue, float64(n.Load()), value)
}

// seconds shows a histogram of microseconds.
func (s sink) seconds(name, help string, h *stats.Histogram) { s.histogram(name, help, h, 1e-6) }

func (s sink) histogram(name, help string, h *stats.Histogram, scale float64) {
	count, sum, upTo := h.Read(scale)
	s.ch <- prometheus.MustNewConstHistogram(prometheus.NewDesc(name, help, nil, nil), count, sum, upTo)
}
