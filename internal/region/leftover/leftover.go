// Package leftover ends, for one region, operations that clients have left behind: by the steps that
// a client takes who asks again. It begins no operation, and keeps nothing but what its last look
// has found.
package leftover

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/api/region/client"
)

const (
	sideBySide = 4
	lookTime   = time.Minute      // at most, of one reading
	settleTime = 30 * time.Second // at most, of what one leftover needs
	// atOnce is how many leftovers are worked on after one look. The others are found by the next.
	atOnce = 1000
)

// Config is whose leftovers are ended, and when.
type Config struct {
	Region *client.Region
	// Grace is how long something must have stood still. A client that is alive and slower than
	// that is joined, and not disturbed: both do the same, once.
	Grace   time.Duration
	Log     *slog.Logger
	Metrics *Metrics
}

// Metrics count what was found. They have no label from outside.
type Metrics struct {
	found   prometheus.Gauge
	settled *prometheus.CounterVec
	looks   *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		found:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "xb_region_leftovers", Help: "Operations and claims of this region that had not changed for the grace, and were not at their end, at the last look."}),
		settled: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "xb_region_leftovers_settled_total", Help: "Leftovers that this agent worked on, by outcome. open: a region did not answer, or another operation went on; it is tried again. failed: a region refused it."}, []string{"outcome"}),
		looks:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "xb_region_leftover_looks_total", Help: "Readings of what is left to do, by outcome."}, []string{"outcome"}),
	}
	for _, outcome := range []string{"ended", "open", "failed"} {
		m.settled.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"done", "failed"} {
		m.looks.WithLabelValues(outcome)
	}
	registry.MustRegister(m.found, m.settled, m.looks)
	return m
}

// Run looks once in each grace, until ctx ends. Whatever two looks in a row have found unchanged was
// left behind.
func Run(ctx context.Context, c Config) {
	tick := time.NewTicker(c.Grace)
	defer tick.Stop()
	defer c.Metrics.found.Set(0) // another agent looks from now on
	var before map[client.Leftover]bool
	for ctx.Err() == nil {
		before = c.look(ctx, before)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// look returns what is left to do now, and ends what was left to do before and has not changed.
func (c Config) look(ctx context.Context, before map[client.Leftover]bool) map[client.Leftover]bool {
	soon, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	all, err := c.Region.Leftovers(soon)
	switch {
	case ctx.Err() != nil, errors.Is(err, client.ErrNotMember): // it may join yet
		return nil
	case err != nil:
		c.Metrics.looks.WithLabelValues("failed").Inc()
		c.Log.Warn("what is left to do cannot be read; it is tried again", "error", err)
		return before
	}
	c.Metrics.looks.WithLabelValues("done").Inc()
	now, old := map[client.Leftover]bool{}, []client.Leftover{}
	for _, l := range all {
		now[l] = true
		if before[l] {
			old = append(old, l)
		}
	}
	c.Metrics.found.Set(float64(len(old)))
	var g errgroup.Group
	g.SetLimit(sideBySide)
	for _, l := range old[:min(len(old), atOnce)] {
		g.Go(func() error {
			c.settle(ctx, l)
			return nil
		})
	}
	_ = g.Wait() // they return none
	return now
}

func (c Config) settle(ctx context.Context, l client.Leftover) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	outcome := "ended"
	switch err := c.Region.Settle(ctx, l); {
	case err == nil:
		c.Log.Info("what a client left behind was ended", "kind", l.Kind, "name", l.Name, "operation", l.Operation)
	case errors.Is(err, client.ErrOpen):
		outcome = "open"
		c.Log.Info("what a client left behind cannot be ended yet", "kind", l.Kind, "name", l.Name, "operation", l.Operation, "error", err)
	default:
		outcome = "failed"
		c.Log.Warn("what a client left behind cannot be ended", "kind", l.Kind, "name", l.Name, "operation", l.Operation, "error", err)
	}
	c.Metrics.settled.WithLabelValues(outcome).Inc()
}
