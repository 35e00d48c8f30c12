package endpointslice

import (
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// moves is the way from the slices that exist to those that are wanted.
type moves struct {
	home    map[string]string // by part, the wanted slice that holds it
	pending []change          // the writes that are not ordered yet
}

// change is the creation or update of one slice.
type change struct {
	plan.Write
	name   string
	leaves []string // the parts that it takes out of the slice, and that are in another wanted slice
	grows  bool     // it leaves as many ready endpoints in the slice as before, or more
}

// Writes returns the writes that make the slices that exist into the wanted ones.
// Those in grow add ready endpoints and come before every other write, those in
// shrink take some away and come after. A part that moves is in its new slice before
// it leaves the old one. The only exception is parts that move in a circle, which can
// happen after writes were cut short.
func Writes(have, want map[string]*discoveryv1.EndpointSlice) (grow, shrink []plan.Write) {
	m := moves{home: make(map[string]string)}
	for name, s := range want {
		for _, p := range Parts(s) {
			m.home[p.Name()] = name
		}
	}
	all := slices.Collect(maps.Values(have))
	for _, name := range slices.Sorted(maps.Keys(want)) {
		next, old := want[name], have[name]
		if old == nil {
			w := plan.Created(next, "use endpoints of "+strings.Join(clustersOf(Parts(next)), ", "))
			m.pending = append(m.pending, change{w, name, nil, true})
			continue
		}
		next.ObjectMeta = merged(old.ObjectMeta, next.ObjectMeta)
		if !plan.Same(old, next) {
			m.update(old, next, all)
		}
	}
	grow, shrink = m.order()
	return grow, append(shrink, m.deletions(have, want)...)
}

// update adds the change of one slice; all are the slices that exist.
func (m *moves) update(old, next *discoveryv1.EndpointSlice, all []*discoveryv1.EndpointSlice) {
	of := clustersOf(append(Fresh(next, all), Fresh(old, []*discoveryv1.EndpointSlice{next})...))
	if len(of) == 0 { // only labels, annotations or conditions differ
		of = clustersOf(Parts(next))
	}
	w := plan.Updated(old, next, "follow the endpoints of "+strings.Join(of, ", "))
	c := change{w, old.Name, nil, Ready(next.Endpoints) >= Ready(old.Endpoints)}
	for _, p := range Parts(old) {
		if home := m.home[p.Name()]; home != "" && home != old.Name {
			c.leaves = append(c.leaves, p.Name())
		}
	}
	m.pending = append(m.pending, c)
}

// order empties pending.
func (m *moves) order() (grow, shrink []plan.Write) {
	growing := func(c change) bool { return c.grows && m.safe(c) }
	for w, ok := m.take(growing); ok; w, ok = m.take(growing) {
		grow = append(grow, w)
	}
	for len(m.pending) > 0 {
		w, ok := m.take(m.safe)
		if !ok { // the parts move in a circle
			w, _ = m.take(func(change) bool { return true })
		}
		shrink = append(shrink, w)
	}
	return grow, shrink
}

// safe reports whether no part leaves the slice before its new slice holds it.
func (m *moves) safe(c change) bool {
	return !slices.ContainsFunc(m.pending, func(other change) bool {
		return slices.ContainsFunc(c.leaves, func(part string) bool { return m.home[part] == other.name })
	})
}

// take removes the first pending change that satisfies the condition.
func (m *moves) take(satisfies func(change) bool) (plan.Write, bool) {
	i := slices.IndexFunc(m.pending, satisfies)
	if i < 0 {
		return plan.Write{}, false
	}
	w := m.pending[i].Write
	m.pending = slices.Delete(m.pending, i, i+1)
	return w, true
}

// deletions returns the deletions of the slices that are not wanted.
func (m *moves) deletions(have, want map[string]*discoveryv1.EndpointSlice) (all []plan.Write) {
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if want[name] != nil {
			continue
		}
		why := "its endpoints are in other slices"
		if gone := slices.DeleteFunc(Parts(have[name]), func(p Part) bool { return m.home[p.Name()] != "" }); len(gone) > 0 {
			why = "endpoints of " + strings.Join(clustersOf(gone), ", ") + " are used no more"
		}
		all = append(all, plan.Deleted(have[name], why))
	}
	return all
}

// merged returns the metadata that exists, with the labels, annotations and owners
// that are wanted.
func merged(old, want metav1.ObjectMeta) metav1.ObjectMeta {
	next := *old.DeepCopy()
	next.Labels, next.Annotations, next.OwnerReferences = want.Labels, want.Annotations, want.OwnerReferences
	return next
}
