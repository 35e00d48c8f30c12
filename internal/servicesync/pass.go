package servicesync

import (
	"context"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/notebook"
)

// handle makes one pass for a Service, and queues the next one if another is needed.
func (s *site) handle(ctx context.Context, k types.NamespacedName) {
	start := time.Now()
	if !s.notes.CaughtUp(k, start) {
		return // the event of the last write queues the Service again; see overdue
	}
	again, err := s.pass(ctx, k, start, s.notes.Take(k))
	s.metrics.pass.WithLabelValues(string(s.model.Cluster)).Observe(time.Since(start).Seconds())
	switch {
	case err == nil:
		s.queue.Forget(k)
		s.settle(k)
		if !again.IsZero() {
			s.queue.AddAfter(k, max(time.Until(again), time.Millisecond))
		}
	case ctx.Err() != nil:
	case access.Overtaken(err):
		s.log.Debug("overtaken; deciding again", "service", k, "error", err)
		s.queue.Again(k)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		s.queue.Again(k) // the namespace controller deletes its objects
		s.settle(k)
	default:
		s.log.Warn("service was not brought up to date; trying again", "service", k, "reason", access.Explain(err, "cluster "+string(s.model.Cluster)), "error", err)
		s.queue.Again(k)
	}
}

// pass decides about a Service and carries out the decision. It returns the time at which
// the decision would change although nothing else does; zero: never.
func (s *site) pass(ctx context.Context, k types.NamespacedName, now time.Time, noticed notebook.Noticed) (time.Time, error) {
	in := s.input(k, now)
	result := model.Decide(s.model, in)
	s.note(k, in, result)
	for _, w := range result.Writes {
		if err := s.write(ctx, k, w); err != nil {
			s.metrics.writes.WithLabelValues(string(s.model.Cluster), access.KindOf(w.Object), string(w.Verb), outcome(err)).Inc()
			return time.Time{}, err
		}
		s.metrics.writes.WithLabelValues(string(s.model.Cluster), access.KindOf(w.Object), string(w.Verb), "done").Inc()
		s.log.Debug("wrote", "service", k, "verb", w.Verb, "kind", access.KindOf(w.Object), "object", access.ObjectName(w.Object), "why", w.Why)
		s.measureDelay(in, w, noticed)
	}
	// After a write the informers are behind; the next pass writes the conditions then.
	if len(result.Writes) == 0 {
		if err := s.writeConditions(ctx, k, result); err != nil {
			return time.Time{}, err
		}
	}
	return sooner(result.Again, s.roster.NextHealthChange(now)), nil
}

// sooner returns the earlier of two times. Zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func outcome(err error) string {
	if access.Overtaken(err) {
		return "conflict"
	}
	return "failed"
}

// input returns all that is known of a Service.
func (s *site) input(k types.NamespacedName, now time.Time) model.Input {
	return model.Input{
		Now: now, Service: k, Local: s.informers.local(k), Published: s.informers.published(k), Peers: s.roster.Peers(k, now),
	}
}

// write carries out one write, and notes to wait until the informers show it.
func (s *site) write(ctx context.Context, k types.NamespacedName, w model.Write) error {
	more := countedBy(w)
	if more != 0 {
		done, err := s.count.announce(ctx, s.keeper, more)
		defer done()
		if err != nil {
			return err
		}
	}
	store := s.own
	if w.Where == model.Publications {
		store = s.publications
	}
	written, err := store.Apply(ctx, w)
	if err != nil {
		if more != 0 && access.Refused(err) {
			s.keeper.Retract(more)
		}
		return err
	}
	// A write that changes nothing is shown already, and no event follows it.
	if shown := s.informers.shown(w, written); shown != nil && !shown() {
		s.notes.Wrote(k, shown)
	}
	return nil
}

// overdue queues Services whose last write the informers have not shown in time, until ctx
// ends. Somebody else may have changed the object again before the informer saw the write.
func (s *site) overdue(ctx context.Context) {
	for ctx.Err() == nil {
		access.Pause(ctx, notebook.Patience/5)
		for _, k := range s.notes.Overdue(time.Now()) {
			s.add(k, false)
		}
	}
}

// measureDelay measures how long changes took until this write, which passes them on.
func (s *site) measureDelay(in model.Input, w model.Write, noticed notebook.Noticed) {
	own, now := string(s.model.Cluster), time.Now()
	switch obj := w.Object.(type) {
	case *v1alpha1.PublishedService, *v1alpha1.PublishedSlice:
		if !noticed.Own.IsZero() && w.Verb != model.Delete && publishesChange(obj, in.Now) {
			since(s.metrics.propagation.WithLabelValues(own, own, stagePublish), noticed.Own, now)
		}
	case *discoveryv1.EndpointSlice:
		for _, part := range endpointslice.Fresh(obj, in.Local.Slices) {
			at, live := noticed.Peers[part.Cluster]
			if !live {
				continue
			}
			from := string(part.Cluster)
			since(s.metrics.propagation.WithLabelValues(own, from, stageImport), at, now)
			for _, p := range in.Peers[part.Cluster].Published.All() {
				if p.Name == part.Slice && p.Spec.Changed != nil {
					since(s.metrics.propagation.WithLabelValues(own, from, stageTransfer), p.Spec.Changed.Time, at)
					since(s.metrics.propagation.WithLabelValues(own, from, stageTotal), p.Spec.Changed.Time, now)
				}
			}
		}
	}
}

// publishesChange reports whether the pass at now changed endpoints in a publication.
func publishesChange(publication model.Object, now time.Time) bool {
	service, ok := publication.(*v1alpha1.PublishedService)
	return !ok || slices.ContainsFunc(service.Spec.Slices, func(s v1alpha1.InlineSlice) bool {
		return s.Changed != nil && !s.Changed.Time.Before(now.Truncate(time.Microsecond))
	})
}

// note stores the outcome of a decision in the notebook, and logs and counts what is new.
func (s *site) note(k types.NamespacedName, in model.Input, result model.Result) {
	own := string(s.model.Cluster)
	before, fresh := s.notes.Decided(k, result.Facts, result.Events)
	if result.Facts.Phase != before.Phase && result.Facts.Phase != "" {
		s.metrics.migrations.WithLabelValues(own, string(result.Facts.Phase)).Inc()
		s.log.Info("handover", "service", k, "phase", result.Facts.Phase)
	}
	if result.Facts.Kept && !before.Kept {
		s.metrics.kept.WithLabelValues(own).Inc()
	}
	if holds := result.Facts.Holds; holds != before.Holds && holds != "" {
		level := slog.LevelDebug // for example a replica that waits for its namespace; there may be many
		if result.Facts.Phase != "" || result.Facts.Asked {
			level = slog.LevelInfo
		}
		s.log.Log(context.Background(), level, "service waits", "service", k, "for", holds)
	}
	for _, w := range result.Writes {
		if w.Verb == model.Delete && w.Where == model.Own {
			s.metrics.sweeps.WithLabelValues(own, access.KindOf(w.Object)).Inc()
		}
	}
	s.tell(k, in, fresh)
}

// tell logs events about a Service and records them in the cluster.
func (s *site) tell(k types.NamespacedName, in model.Input, events []model.Event) {
	for _, e := range events {
		if e.Type == corev1.EventTypeWarning {
			s.log.Warn("about a service", "service", k, "reason", e.Reason, "note", e.Note)
		}
		if about := subject(in); about != nil {
			s.recorder.Event(about, e.Type, e.Reason, e.Note)
		}
	}
}

// subject returns the object that an Event about a Service refers to; nil if there is none.
func subject(in model.Input) model.Object {
	switch {
	case in.Local.Service != nil:
		return in.Local.Service
	case in.Local.Export != nil:
		return in.Local.Export
	case in.Published.Service != nil:
		return in.Published.Service
	default:
		return nil
	}
}

// settle notes that a Service is up to date.
func (s *site) settle(k types.NamespacedName) {
	if s.notes.Settle(k) {
		s.complete()
	}
}

// complete says in the lease that all Services are published.
func (s *site) complete() {
	s.keeper.Set(func(spec *v1alpha1.ClusterLeaseSpec) { spec.Complete = true })
}
