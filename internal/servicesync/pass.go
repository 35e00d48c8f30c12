package servicesync

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// handle makes one pass for a Service, and sees to it that there is another
// one if it is needed.
func (s *site) handle(ctx context.Context, k types.NamespacedName) {
	start := time.Now()
	if !s.caughtUp(k, start) {
		return // what shows the rest comes with an event; see overdue
	}
	noticed, received := s.take(k)
	again, err := s.pass(ctx, k, start, noticed, received)
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
		s.queue.Again(k) // what is in it goes by itself
		s.settle(k)
	default:
		s.log.Warn("service was not brought up to date; trying again", "service", k, "reason", access.Explain(err, "cluster "+string(s.model.Cluster)), "error", err)
		s.queue.Again(k)
	}
}

// pass decides about a Service and carries out what was decided. It returns
// when time alone would change the decision.
func (s *site) pass(ctx context.Context, k types.NamespacedName, now, noticed time.Time, received map[model.ClusterID]time.Time) (time.Time, error) {
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
		s.time(in, w, noticed, received)
	}
	// What was written may not be in view yet: then another pass comes, and says it.
	if len(result.Writes) == 0 {
		if err := s.sayConditions(ctx, k, result); err != nil {
			return time.Time{}, err
		}
	}
	return sooner(result.Again, s.nextTurn(now)), nil
}

// nextTurn is when the health of a peer changes that is remembered and not read:
// nobody follows it. Zero is never.
func (s *site) nextTurn(now time.Time) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, m := range s.remember {
		if _, reads := s.peers[id]; !reads {
			_, until := m.peering().Health(now)
			next = sooner(next, until)
		}
	}
	return next
}

// sooner is the earlier of two times, of which zero is never.
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

// input is all that is known of a Service.
func (s *site) input(k types.NamespacedName, now time.Time) model.Input {
	in := model.Input{
		Now: now, Service: k,
		Local: model.Local{
			Service:       s.services.Get(k.Namespace, k.Name),
			Slices:        s.slices.Of(k),
			Endpoints:     s.endpoints.Get(k.Namespace, k.Name),
			Export:        s.exports.Get(k.Namespace, k.Name),
			Import:        s.imports.Get(k.Namespace, k.Name),
			Derived:       s.services.Get(k.Namespace, model.DerivedName(k)),
			DerivedSlices: s.slices.Of(types.NamespacedName{Namespace: k.Namespace, Name: model.DerivedName(k)}),
		},
		Published: model.Published{Slices: s.pubSlices.Of(k)},
		Peers:     make(map[model.ClusterID]model.Peer),
	}
	if ns := s.namespaces.Get("", k.Namespace); ns != nil {
		in.Local.Namespace = ns.DeletionTimestamp == nil
	}
	if found := s.pubs.Of(k); len(found) > 0 {
		in.Published.Service = found[0]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, m := range s.remember {
		peering := m.peering()
		peering.Forgotten = s.forgotten[id]
		in.Peers[id] = peering.Peer(s.model.Cluster, now, model.Published{})
	}
	for id := range s.forgotten {
		if _, ok := in.Peers[id]; !ok {
			in.Peers[id] = model.Peering{Heard: now, Forgotten: true}.Peer(s.model.Cluster, now, model.Published{})
		}
	}
	for id, p := range s.peers {
		peering := p.peering()
		peering.Forgotten = s.forgotten[id]
		published := model.Published{}
		if peering.Synced {
			published = p.published(k) // read later than the lease: it lacks nothing that the lease counts
			if published.Service == nil {
				peering.Services = p.countedWithout(k)
			}
		}
		in.Peers[id] = peering.Peer(s.model.Cluster, now, published)
		p.decided(standingOf(in.Peers[id]))
	}
	return in
}

// write carries out one write, and remembers to wait until the views show it.
func (s *site) write(ctx context.Context, k types.NamespacedName, w model.Write) error {
	// How many Services are published is said before it is so, once anybody counts.
	more := int32(0)
	if _, ok := w.Object.(*v1alpha1.PublishedService); ok && w.Verb == model.Create {
		more = 1
	} else if ok && w.Verb == model.Delete {
		more = -1
	}
	if more != 0 {
		s.counting.RLock()
		defer s.counting.RUnlock()
		count := func() { s.counted.Store(time.Now().UnixNano()) }
		count()
		defer count()
		if err := s.keeper.Announce(ctx, more); err != nil {
			s.keeper.Retract(more)
			return fmt.Errorf("write in own lease how many services are published: %w", err)
		}
	}
	store := s.own
	if w.Store == model.Publications {
		store = s.publications
	}
	written, err := store.Apply(ctx, w)
	if err != nil {
		if more != 0 && access.Refused(err) {
			s.keeper.Retract(more)
		}
		return err
	}
	shown := s.shown(w, written)
	if shown == nil || shown() { // a write that changes nothing is, and no event comes of it
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.noted(k)
	n.written = append(n.written, receipt{shown, time.Now().Add(patience)})
	return nil
}

// recount corrects how many Services the lease says are published, where it is
// not known what came of writes that were announced. It waits for quiet.
func (s *site) recount() {
	if time.Since(time.Unix(0, s.counted.Load())) < patience || !s.counting.TryLock() {
		return
	}
	defer s.counting.Unlock()
	s.keeper.Set(func(spec *v1alpha1.ClusterLeaseSpec) {
		spec.Services = int32(s.pubs.Len()) //nolint:gosec // Services of one cluster
	})
}

// shown tells whether the view of what was written has caught up with it.
func (s *site) shown(w model.Write, written model.Object) func() bool {
	switch obj := w.Object.(type) {
	case *corev1.Service:
		return receiptOf(s.services, obj, written)
	case *discoveryv1.EndpointSlice:
		return receiptOf(s.slices, obj, written)
	case *corev1.Namespace:
		return receiptOf(s.namespaces, obj, written)
	case *corev1.Endpoints: //nolint:staticcheck // deprecated, and written on request
		return receiptOf(s.endpoints, obj, written)
	case *v1alpha1.PublishedService:
		return receiptOf(s.pubs, obj, written)
	case *v1alpha1.PublishedSlice:
		return receiptOf(s.pubSlices, obj, written)
	case *mcs.ServiceExport:
		return receiptOf(s.exports, obj, written)
	case *mcs.ServiceImport:
		return receiptOf(s.imports, obj, written)
	default:
		return nil
	}
}

func receiptOf[T model.Object](v *access.View[T], asked T, written model.Object) func() bool {
	if w, ok := written.(T); ok && written != nil {
		return func() bool { return v.Shows(w) }
	}
	return func() bool { return v.Lacks(asked) }
}

// caughtUp reports whether the views show all that was written for a Service.
func (s *site) caughtUp(k types.NamespacedName, now time.Time) bool {
	s.mu.Lock()
	n := s.notes[k]
	if n == nil || len(n.written) == 0 {
		s.mu.Unlock()
		return true
	}
	waiting := n.written
	s.mu.Unlock()
	for len(waiting) > 0 && (waiting[0].shown() || now.After(waiting[0].deadline)) {
		waiting = waiting[1:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(waiting) == 0 {
		waiting = nil
	}
	n.written = waiting
	return len(waiting) == 0
}

// overdue has Services decided about whose writes no event has shown, until ctx
// ends: what was written may have been overtaken where nobody saw it.
func (s *site) overdue(ctx context.Context) {
	for ctx.Err() == nil {
		access.Pause(ctx, patience/5)
		now := time.Now()
		var late []types.NamespacedName
		s.mu.Lock()
		for k, n := range s.notes {
			if len(n.written) > 0 && now.After(n.written[0].deadline) {
				late = append(late, k)
			}
		}
		s.mu.Unlock()
		for _, k := range late {
			s.add(k, false)
		}
	}
}

// take takes the times at which the changes were noticed that are now decided about.
func (s *site) take(k types.NamespacedName) (time.Time, map[model.ClusterID]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.notes[k]
	if n == nil {
		return time.Time{}, nil
	}
	noticed, received := n.noticed, n.received
	n.noticed, n.received = time.Time{}, nil
	return noticed, received
}

// time measures how long a change took that a write passes on.
func (s *site) time(in model.Input, w model.Write, noticed time.Time, received map[model.ClusterID]time.Time) {
	own, now := string(s.model.Cluster), time.Now()
	switch obj := w.Object.(type) {
	case *v1alpha1.PublishedService, *v1alpha1.PublishedSlice:
		if !noticed.IsZero() && w.Verb != model.Delete && publishesChange(obj, in.Now) {
			since(s.metrics.propagation.WithLabelValues(own, own, stagePublish), noticed, now)
		}
	case *discoveryv1.EndpointSlice:
		for _, part := range model.Fresh(obj, in.Local.Slices) {
			at, live := received[part.Cluster]
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

// publishesChange reports whether endpoints in a publication changed with the pass at now.
func publishesChange(publication model.Object, now time.Time) bool {
	service, ok := publication.(*v1alpha1.PublishedService)
	return !ok || slices.ContainsFunc(service.Spec.Slices, func(s v1alpha1.InlineSlice) bool {
		return s.Changed != nil && !s.Changed.Time.Before(now.Truncate(time.Microsecond))
	})
}

// note keeps what a decision found out, and tells people what is new in it.
func (s *site) note(k types.NamespacedName, in model.Input, result model.Result) {
	own := string(s.model.Cluster)
	s.mu.Lock()
	n := s.noted(k)
	before := n.facts
	n.facts = result.Facts
	fresh := result.Events
	if len(n.said) > 0 {
		fresh = nil
		for _, e := range result.Events {
			if !n.said[e] {
				fresh = append(fresh, e)
			}
		}
	}
	n.said = nil
	if len(result.Events) > 0 {
		n.said = make(map[model.Event]bool, len(result.Events))
		for _, e := range result.Events {
			n.said[e] = true
		}
	}
	s.mu.Unlock()

	if result.Facts.Phase != before.Phase && result.Facts.Phase != "" {
		s.metrics.migrations.WithLabelValues(own, string(result.Facts.Phase)).Inc()
		s.log.Info("handover", "service", k, "phase", result.Facts.Phase)
	}
	if result.Facts.Kept && !before.Kept {
		s.metrics.kept.WithLabelValues(own).Inc()
	}
	if holds := result.Facts.Holds; holds != before.Holds && holds != "" {
		level := slog.LevelDebug // a replica that waits for its namespace, say: as many as there are
		if result.Facts.Phase != "" || result.Facts.Asked {
			level = slog.LevelInfo
		}
		s.log.Log(context.Background(), level, "service waits", "service", k, "for", holds)
	}
	for _, w := range result.Writes {
		if w.Verb == model.Delete && w.Store == model.Own {
			s.metrics.sweeps.WithLabelValues(own, access.KindOf(w.Object)).Inc()
		}
	}
	for _, e := range fresh {
		if e.Type == corev1.EventTypeWarning {
			s.log.Warn("about a service", "service", k, "reason", e.Reason, "note", e.Note)
		}
		if about := subject(in); about != nil {
			s.recorder.Event(about, e.Type, e.Reason, e.Note)
		}
	}
}

// subject is what an Event about a Service is put at; nil: there is nothing.
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

// settle takes a Service off those that the start has still to decide about,
// and drops notes that say nothing.
func (s *site) settle(k types.NamespacedName) {
	s.mu.Lock()
	delete(s.initial, k)
	if n := s.notes[k]; n != nil && n.idle() {
		delete(s.notes, k)
	}
	s.mu.Unlock()
	s.settled()
}

// idle reports that nothing is lost with the notes.
func (n *notes) idle() bool {
	f := n.facts
	return n.noticed.IsZero() && n.received == nil && n.written == nil && n.said == nil &&
		f.Conflict == "" && f.Holds == "" && f.Phase == "" && !f.Kept
}

// settled has the lease say that all is published, once it is.
func (s *site) settled() {
	s.mu.Lock()
	done := s.loaded && len(s.initial) == 0
	s.mu.Unlock()
	if done {
		s.keeper.Set(func(spec *v1alpha1.ClusterLeaseSpec) { spec.Complete = true })
	}
}
