package model

import (
	"cmp"
	"maps"
	"slices"

	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/mcs"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// planPublications is the result for a Service that is not shared: nothing but its
// publication is written.
func planPublications(seen *view, next next, pub publication) Result {
	return Result{Writes: planPublished(seen, pub), Events: seen.found.Events(), Facts: factsOf(seen, next, nil)}
}

// planAll orders the writes. Slices with more ready endpoints are written before the
// Service changes, and those with fewer afterwards. Publications come last, because
// they state what is true by then.
func planAll(seen *view, aim aim, next next, use use, pub publication) Result {
	facts := factsOf(seen, next, use.parts)
	facts.Conflict, facts.Holds = use.conflict, next.holds
	if lacksNamespace(seen, next) {
		facts.Holds = "waits for its namespace to exist here"
	}
	facts.Kept = use.kept || seen.svc != nil && seen.leftServe(use.parts)

	var grow, shrink []Write
	if !next.drop && (seen.svc != nil || next.service == nil) { // with the Service, its slices are deleted too
		want := endpointslice.Bundle(seen.svc, use.parts, cmp.Or(seen.cfg.PerSlice, endpointslice.Most))
		grow, shrink = endpointslice.Writes(seen.have, want)
	}
	imports, notes := mcs.Decide(mcsInput(seen, pub))
	return Result{
		Writes: slices.Concat(grow, planService(seen, next), shrink, planLeftOvers(seen, use), planEndpoints(seen, next, use), imports, planPublished(seen, pub)),
		Events: eventsOf(seen.found, aim.notes, next.notes, use.notes, notes),
		Again:  next.again,
		Facts:  facts,
	}
}

// planLeftOvers deletes what Kubernetes left behind when the selector was taken away.
func planLeftOvers(seen *view, use use) (all []Write) {
	if seen.leftServe(use.parts) {
		return nil
	}
	left := seen.left.objects()
	if len(left) > 0 {
		// This update changes nothing, but fails if the selector was restored unseen:
		// then the objects are in use.
		all = append(all, plan.Updated(seen.svc, seen.svc, "make sure that the selector is still away"))
	}
	for _, o := range left {
		all = append(all, plan.Deleted(o, "Kubernetes left it behind when the selector was taken away"))
	}
	return all
}

// mcsInput is what the multi-cluster services API depends on.
func mcsInput(seen *view, pub publication) mcs.Input {
	l, stored := seen.in.Local, seen.in.Published.Service
	return mcs.Input{
		Now: seen.in.Now, Service: seen.in.Service, Rules: seen.rules(), Families: seen.cfg.Families,
		Peers: seen.in.Peers, Others: seen.others,
		Here: mcs.Here{
			Member: seen.me, Annotated: seen.annotated(), Namespace: l.Namespace, Service: seen.svc,
			Published: stored != nil && stored.Spec.Exported != nil, Slices: pub.slices,
			Export: l.Export, Import: l.Import, Derived: l.Derived, DerivedSlices: l.DerivedSlices,
		},
	}
}

// factsOf returns the facts that hold for every Service; used are the endpoints of
// other clusters that are used here.
func factsOf(seen *view, next next, used parts) Facts {
	f := Facts{Role: seen.me.Role, Mode: seen.me.Mode, Asked: seen.me.Asked, Ready: map[ClusterID]int{seen.cfg.Cluster: seen.ready}}
	if underWay(next.handover) {
		f.Phase = next.handover.Phase
	}
	for _, p := range used {
		f.Ready[p.Cluster] += endpointslice.Ready(p.Endpoints)
	}
	return f
}

// eventsOf returns the notes of all steps as events.
func eventsOf(steps ...plan.Notes) []Event {
	var all plan.Notes
	for _, n := range steps {
		all.Add(n)
	}
	return all.Events()
}

func sortedNames[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }
