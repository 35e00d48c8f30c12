package servicesync

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/roster"
)

// measured is how often gauges are set.
const measured = 5 * time.Second

// measure sets the gauges, until ctx ends.
func (s *site) measure(ctx context.Context) {
	own := string(s.model.Cluster)
	for ctx.Err() == nil {
		live, backlog := s.queue.Depth()
		s.metrics.queue.WithLabelValues(own, "live").Set(float64(live))
		s.metrics.queue.WithLabelValues(own, "backlog").Set(float64(backlog))
		s.measureFacts(own)
		now := time.Now()
		for _, p := range s.roster.Gauges(now) {
			for _, state := range roster.States {
				is := 0.
				if state == p.State {
					is = 1
				}
				s.metrics.health.WithLabelValues(own, p.Peer, state).Set(is)
			}
			if !p.Heard.IsZero() {
				s.metrics.lag.WithLabelValues(own, p.Peer).Set(now.Sub(p.Heard).Seconds())
			}
			s.metrics.services.WithLabelValues(own, p.Peer).Set(float64(p.Services))
		}
		s.count.recount(s.keeper, s.informers.publications.Len)
		access.Pause(ctx, measured)
	}
}

// measureFacts sets the gauges of what the last decisions about Services found.
func (s *site) measureFacts(own string) {
	totals := s.notes.Totals()
	s.metrics.holds.WithLabelValues(own).Set(float64(totals.Holds))
	s.metrics.conflicts.DeletePartialMatch(prometheus.Labels{"cluster": own})
	for reason, n := range totals.Conflicts {
		s.metrics.conflicts.WithLabelValues(own, reason).Set(float64(n))
	}
	s.metrics.migrating.DeletePartialMatch(prometheus.Labels{"cluster": own})
	for phase, n := range totals.Phases {
		s.metrics.migrating.WithLabelValues(own, phase).Set(float64(n))
	}
}
