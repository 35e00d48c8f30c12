package gauges_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/xbernetes/xbernetes/internal/etcdapi"
	"github.com/xbernetes/xbernetes/internal/gauges"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/faultlog"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// server is a replica under test, and its metrics.
type server struct {
	*replica.Replica
	registry *prometheus.Registry
	t        *testing.T
	stop     func()
}

// start runs a replica on a journal until the test ends. It has reached the tail.
func start(t *testing.T, store journal.Store, change func(*replica.Config)) *server {
	t.Helper()
	cfg := replica.Config{Store: store, Notifier: notify.NewPolling(100*time.Millisecond, time.Second), Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	s := &server{Replica: replica.New(cfg), registry: prometheus.NewPedanticRegistry(), t: t}
	api := etcdapi.New(etcdapi.Config{Replica: s.Replica, Logger: cfg.Logger})
	s.registry.MustRegister(gauges.New(gauges.Server{Replica: s.Replica, API: api, Labels: prometheus.Labels{"version": "test"}}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the replica ended: %v", err)
		}
		ended <- nil
	}
	t.Cleanup(s.stop)
	<-s.Ready()
	return s
}

func (s *server) put(key, value string) error {
	_, err := s.Propose(context.Background(), &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: key}, Value: []byte(value)}}})
	return err
}

// value returns what a metric shows. Its name may have one label's value behind a dot. Of
// a histogram it returns how many values there were.
func (s *server) value(name string) float64 {
	s.t.Helper()
	name, label, _ := strings.Cut(name, ".")
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || label != "" && m.GetLabel()[0].GetValue() != label {
				continue
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	s.t.Fatalf("there is no metric %s %s", name, label)
	return 0
}

// want fails unless metrics show what they should.
func (s *server) want(when string, values map[string]float64) {
	s.t.Helper()
	for name, want := range values {
		if got := s.value(name); got != want {
			s.t.Errorf("%s: %s = %v, want %v", when, name, got, want)
		}
	}
}

// TestLint: the names and helps follow Prometheus' conventions, before and while the
// replica runs.
func TestLint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, memlog.New(memlog.Options{}).Open(), nil)
		problems, err := testutil.GatherAndLint(s.registry)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		families, err := s.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		series := 0
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), "xb_") {
				t.Errorf("%s does not begin with xb_", f.GetName())
			}
			series += len(f.GetMetric())
		}
		for i := range 50 {
			if err := s.put(fmt.Sprint(i), "x"); err != nil {
				t.Fatal(err)
			}
		}
		if after, err := testutil.GatherAndCount(s.registry); err != nil || after != series {
			t.Errorf("%d series after 50 writes, %v; want %d, as before", after, err, series)
		}
	})
}

// TestFaultsAreCounted: what each Append came to is counted as the journal in the test
// dealt it out.
func TestFaultsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty, err := faultlog.New(memlog.New(memlog.Options{}).Open(), faultlog.Config{Seed: 7, Fail: .1, FailApplied: .1, FalseTaken: .1, ReadFail: .1})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, faulty, nil)
		for i := range 200 {
			if err := s.put(fmt.Sprint(i), "x"); err != nil {
				t.Fatal(err)
			}
		}
		n := faulty.Counts()
		if n.Fail == 0 || n.FailApplied == 0 || n.FalseTaken == 0 || n.ReadFail == 0 {
			t.Fatalf("the journal dealt out too little: %+v", n)
		}
		s.want("after 200 puts", map[string]float64{
			"xb_journal_appends_total.unknown": float64(n.Fail + n.FailApplied),
			"xb_requests_total.applied":        200,
			"xb_record_requests":               200,
			"xb_queue_requests":                0,
			"xb_journal_lag_slots":             0,
			"xb_journal_outages_total":         0,
		})
		stored, taken := s.value("xb_journal_appends_total.stored"), s.value("xb_journal_appends_total.taken")
		if taken < float64(n.FalseTaken) || stored+taken+float64(n.Fail+n.FailApplied) != s.value("xb_journal_append_duration_seconds") {
			t.Errorf("stored %v, taken %v, unknown %d of %v appends, with %d false answers that a slot is taken", stored, taken, n.Fail+n.FailApplied, s.value("xb_journal_append_duration_seconds"), n.FalseTaken)
		}
		if failed := s.value("xb_journal_reads_total.failed"); failed == 0 || failed > float64(n.ReadFail) {
			t.Errorf("%v reads failed; the journal failed %d calls that read", failed, n.ReadFail)
		}
	})
}

// TestOutageIsCounted: an outage shows while it lasts, and stays counted.
func TestOutageIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty, err := faultlog.New(memlog.New(memlog.Options{}).Open(), faultlog.Config{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, faulty, nil)
		faulty.SetOutage(true)
		if err := s.put("k", "v"); !errors.Is(err, replica.ErrUnknown) {
			t.Fatalf("a put during the outage: %v", err)
		}
		if err := s.put("k", "v"); !errors.Is(err, replica.ErrUnavailable) {
			t.Fatalf("a later put: %v", err)
		}
		s.want("during the outage", map[string]float64{
			"xb_journal_outages_total": 1, "xb_journal_unreadable": 1, "xb_journal_unwritable": 1,
			"xb_requests_total.unknown": 1, "xb_requests_total.unavailable": 1,
		})
		if lag := s.value("xb_journal_lag_seconds"); lag < 2 {
			t.Errorf("lag of %v s during the outage, want the time since the last look at the tail", lag)
		}
		faulty.SetOutage(false)
		time.Sleep(time.Minute)
		s.want("after the outage", map[string]float64{"xb_journal_outages_total": 1, "xb_journal_unreadable": 0, "xb_journal_unwritable": 0, "xb_journal_lag_slots": 0})
		if lag := s.value("xb_journal_lag_seconds"); lag > 2 {
			t.Errorf("lag of %v s after the outage", lag)
		}
	})
}

// TestUpkeepIsCounted: snapshots, the floor, deleted records and void records are
// counted.
// scripted is a source of hints that a test gives.
type scripted chan journal.Slot

func (s scripted) Tell(journal.Slot) {}

func (s scripted) Run(ctx context.Context, to *notify.Woken) {
	to.Up()
	for {
		select {
		case slot := <-s:
			to.Heard(slot)
		case <-ctx.Done():
			return
		}
	}
}

// TestNotificationsAreCounted: a hint of a record that others wrote wakes the replica, and
// a second one of it is late.
func TestNotificationsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, hints := memlog.New(memlog.Options{}), make(scripted)
		woken := notify.NewWoken(hints, time.Hour, time.Hour, slog.New(slog.DiscardHandler))
		reader := start(t, store.Open(), func(cfg *replica.Config) { cfg.Notifier = woken })
		reader.registry = prometheus.NewPedanticRegistry()
		reader.registry.MustRegister(gauges.New(gauges.Server{Replica: reader.Replica, Woken: woken}))
		writer := start(t, store.Open(), nil)
		if err := writer.put("k", "v"); err != nil {
			t.Fatal(err)
		}
		hints <- writer.View().Slot()
		synctest.Wait()
		hints <- writer.View().Slot()
		synctest.Wait()
		for fate, want := range map[string]float64{"received": 2, "woke": 1, "late": 1, "useless": 0, "lost": 0, "failed": 0} {
			if got := reader.value("xb_notifications_total." + fate); got != want {
				t.Errorf("%g notifications count as %s, want %g", got, fate, want)
			}
		}
		reader.stop()
		writer.stop()
	})
}

func TestUpkeepIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memlog.New(memlog.Options{})
		if err := j.Open().Append(t.Context(), 1, []byte("no record")); err != nil {
			t.Fatal(err)
		}
		s := start(t, j.Open(), func(cfg *replica.Config) {
			cfg.Trim, cfg.Snapshots = true, snapshot.Policy{EveryBytes: 4 << 10}
		})
		for i := 0; s.value("xb_trimmed_records_total") == 0 && i < 2000; i++ {
			if err := s.put(fmt.Sprint(i%10), strings.Repeat("x", 100)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // for the snapshots, beside
		}
		s.want("after many puts", map[string]float64{"xb_void_records_total.malformed": 1, "xb_snapshots_total.failed": 0})
		for _, name := range []string{"xb_snapshots_total.stored", "xb_snapshot_stored_bytes_total", "xb_snapshot_store_duration_seconds", "xb_journal_floor_slot", "xb_trimmed_records_total"} {
			if s.value(name) == 0 {
				t.Errorf("%s = 0", name)
			}
		}
		if floor, trimmed := s.value("xb_journal_floor_slot"), s.value("xb_trimmed_records_total"); trimmed != floor-1 {
			t.Errorf("the floor is slot %v, and %v records were deleted", floor, trimmed)
		}
	})
}

// TestContentionIsCounted: slots that another server took, and what is sent again, are
// counted.
func TestContentionIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := memlog.New(memlog.Options{})
		a, b := start(t, j.Open(), nil), start(t, j.Open(), nil)
		for i := range 20 {
			if err := a.put(fmt.Sprint("a", i), "x"); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.put("b", "x"); err != nil { // at slot 1, and then behind a's
			t.Fatal(err)
		}
		if taken, again := b.value("xb_journal_appends_total.taken"), b.value("xb_records_again_total"); taken == 0 || again == 0 {
			t.Errorf("taken %v, again %v: b did not know of a's records", taken, again)
		}
		b.want("after its put", map[string]float64{"xb_journal_applied_slot": float64(b.View().Slot()), "xb_journal_lag_slots": 0})
		if _, err := b.Linearizable(context.Background()); err != nil {
			t.Fatal(err)
		}
		b.want("after a read", map[string]float64{"xb_linearizable_reads_total": 1})
	})
}
