package model

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// Endpoints of several clusters share EndpointSlices, as Kubernetes' own
// controllers have those of several pods share them: what an API server and
// each node's proxy do at a Service grows with the slices more than with the
// endpoints. All decisions are made about parts, which are slices of one
// published slice each; only what is read and what is written is bundled.

// Part is what an EndpointSlice has of one published slice of a cluster.
type Part struct {
	Cluster   ClusterID
	Slice     string // the name of the slice
	Stale     string // see AnnotationStale
	Endpoints []discoveryv1.Endpoint
}

// Parts are what a slice that Service sync made is made of; none of another.
func Parts(s *discoveryv1.EndpointSlice) []Part {
	if s.Labels[discoveryv1.LabelManagedBy] != v1alpha1.ManagedBy {
		return nil
	}
	stale := strings.Split(s.Annotations[v1alpha1.AnnotationStale], ",")
	sources := strings.Split(s.Annotations[v1alpha1.AnnotationFrom], ",")
	parts := make([]Part, 0, len(sources))
	rest := s.Endpoints
	for _, source := range sources {
		name, size, _ := strings.Cut(source, "=")
		cluster, slice, ok := strings.Cut(name, "/")
		n, err := strconv.Atoi(size)
		if !ok || err != nil || n < 0 {
			// Somebody took away what it says: the label may still tell.
			return []Part{{Cluster: ClusterID(s.Labels[v1alpha1.LabelCluster]), Slice: s.Name, Stale: staleIn(stale, ""), Endpoints: s.Endpoints}}
		}
		n = min(n, len(rest))
		parts = append(parts, Part{ClusterID(cluster), slice, staleIn(stale, cluster), rest[:n:n]})
		rest = rest[n:]
	}
	return parts
}

// name is that of the part: no two of a Service have the same.
func (p Part) name() string { return string(p.Cluster) + "/" + p.Slice }

// Fresh are the parts of a slice that none of the others has just like this.
func Fresh(s *discoveryv1.EndpointSlice, others []*discoveryv1.EndpointSlice) []Part {
	fresh := Parts(s)
	for _, other := range others {
		if len(fresh) == 0 {
			break
		}
		for _, old := range Parts(other) {
			fresh = slices.DeleteFunc(fresh, func(p Part) bool {
				return p.name() == old.name() && equality.Semantic.DeepEqual(p.Endpoints, old.Endpoints)
			})
		}
	}
	return fresh
}

// staleIn is the mark of a cluster among those of a slice: of all of its
// clusters, or CLUSTER=MARK.
func staleIn(marks []string, cluster string) string {
	for _, m := range marks {
		of, mark, several := strings.Cut(m, "=")
		if !several {
			return of
		}
		if of == cluster {
			return mark
		}
	}
	return ""
}

// part is a slice of what is imported from one published slice. Its name is that
// of the part, which no object could have: it is never written as it is.
func (d *decision) part(id ClusterID, slice string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{}
	s.Name, s.Namespace = Part{Cluster: id, Slice: slice}.name(), d.in.Service.Namespace
	s.Labels = map[string]string{v1alpha1.LabelCluster: string(id)}
	return s
}

// from is what AnnotationFrom says of one part.
func from(part string, endpoints int) string { return part + "=" + strconv.Itoa(endpoints) }

// unbundle is the parts of the slices that there are, by name. One that was about
// to move is in two slices: the better one counts.
func (d *decision) unbundle(have map[string]*discoveryv1.EndpointSlice) map[string]*discoveryv1.EndpointSlice {
	parts := make(map[string]*discoveryv1.EndpointSlice, len(have))
	for _, name := range slices.Sorted(maps.Keys(have)) {
		for _, p := range Parts(have[name]) {
			s := d.part(p.Cluster, p.Slice)
			s.AddressType, s.Ports, s.Endpoints = have[name].AddressType, have[name].Ports, p.Endpoints
			setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationStale, p.Stale)
			old := parts[s.Name]
			if old == nil || cmp.Or(cmp.Compare(readyIn(old), readyIn(s)), cmp.Compare(len(old.Endpoints), len(s.Endpoints))) < 0 {
				parts[s.Name] = s
			}
		}
	}
	return parts
}

// spare is by how many endpoints the room for a part grows. What is set aside
// changes where their number reaches a multiple of it, so that those that a
// rollout adds to 8, 16 or 24 seldom move the parts behind them to other slices.
const spare = 8

// room is what is set aside for so many endpoints in a slice that holds most.
func room(endpoints, most int) int { return min((endpoints/spare+1)*spare, most) }

// bundle puts parts into few slices, in the order of their names; one that leaves
// no room for another has its own. Which slice has what depends on nothing else.
func (d *decision) bundle(parts map[string]*discoveryv1.EndpointSlice) map[string]*discoveryv1.EndpointSlice {
	bundled := make(map[string]*discoveryv1.EndpointSlice)
	add := func(parts []*discoveryv1.EndpointSlice, name ...string) {
		s := d.together(parts)
		s.Name = clip(d.in.Service.Name) + "-" + digest(append(name, d.in.Service.Name)...)
		bundled[s.Name] = s
	}
	most := cmp.Or(d.cfg.PerSlice, perSlice)
	kinds := make(map[kind][]*discoveryv1.EndpointSlice)
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		p := parts[name]
		k := kind{p.AddressType, encodePorts(p.Ports)}
		if room(len(p.Endpoints), most) > most-spare {
			add([]*discoveryv1.EndpointSlice{p}, string(k.family), k.ports, name)
		} else {
			kinds[k] = append(kinds[k], p)
		}
	}
	for k, of := range kinds {
		for n := 0; len(of) > 0; n++ {
			fit, left := 0, most
			for fit < len(of) && room(len(of[fit].Endpoints), most) <= left {
				left -= room(len(of[fit].Endpoints), most)
				fit++
			}
			add(of[:fit], string(k.family), k.ports, strconv.Itoa(n))
			of = of[fit:]
		}
	}
	return bundled
}

// together is one slice of parts of one kind.
func (d *decision) together(parts []*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: parts[0].AddressType, Ports: parts[0].Ports}
	s.Namespace = d.in.Service.Namespace
	s.Labels = map[string]string{
		discoveryv1.LabelServiceName: d.in.Service.Name,
		discoveryv1.LabelManagedBy:   v1alpha1.ManagedBy,
	}
	var sources, marks []string
	mark, one := parts[0].Annotations[v1alpha1.AnnotationStale], true
	for _, p := range parts {
		sources = append(sources, from(p.Name, len(p.Endpoints)))
		stale := p.Annotations[v1alpha1.AnnotationStale]
		one = one && stale == mark
		if m := p.Labels[v1alpha1.LabelCluster] + "=" + stale; stale != "" && !slices.Contains(marks, m) {
			marks = append(marks, m)
		}
		s.Endpoints = append(s.Endpoints, p.Endpoints...)
	}
	if !one {
		mark = strings.Join(marks, ",")
	}
	s.Annotations = map[string]string{v1alpha1.AnnotationFrom: strings.Join(sources, ",")}
	setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationStale, mark)
	if all := clustersOf(Parts(s)); len(all) == 1 {
		s.Labels[v1alpha1.LabelCluster] = all[0]
	}
	d.belong(s)
	return s
}

// clustersOf are the clusters that parts are of.
func clustersOf(parts []Part) []string {
	var all []string
	for _, p := range parts {
		all = append(all, string(p.Cluster))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// regrouping is the way from the slices that there are to those to have.
type regrouping struct {
	home    map[string]string // the slice to have that each part is in
	changes []change          // still to make
}

// change is a write of a slice.
type change struct {
	Write
	name  string
	moves []string // parts that it takes away for another slice to have
	grows bool     // there are no fewer ready endpoints afterwards
}

// compareSlices says how to get from the slices that there are to those to have:
// those with more endpoints that are ready before anything else, those with less
// after it. What moves is in the slice that it moves to before it leaves the other,
// but for what moves in a circle, as it can after a pass that was cut short.
func compareSlices(have, want map[string]*discoveryv1.EndpointSlice) (grow, shrink []Write) {
	r := regrouping{home: make(map[string]string)}
	for name, s := range want {
		for _, p := range Parts(s) {
			r.home[p.name()] = name
		}
	}
	all := slices.Collect(maps.Values(have))
	for _, name := range slices.Sorted(maps.Keys(want)) {
		next, old := want[name], have[name]
		if old == nil {
			r.changes = append(r.changes, change{Write{Create, Own, next, nil, "use endpoints of " + join(clustersOf(Parts(next)))}, name, nil, true})
			continue
		}
		next.ObjectMeta = merged(old.ObjectMeta, next.ObjectMeta)
		if !same(old, next) {
			r.update(old, next, all)
		}
	}
	growing := func(c change) bool { return c.grows && r.safe(c) }
	for w, ok := r.next(growing); ok; w, ok = r.next(growing) {
		grow = append(grow, w)
	}
	for len(r.changes) > 0 {
		w, ok := r.next(r.safe)
		if !ok { // a circle
			w, _ = r.next(func(change) bool { return true })
		}
		shrink = append(shrink, w)
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if want[name] != nil {
			continue
		}
		why := "its endpoints are in other slices"
		if gone := slices.DeleteFunc(Parts(have[name]), func(p Part) bool { return r.home[p.name()] != "" }); len(gone) > 0 {
			why = "endpoints of " + join(clustersOf(gone)) + " are used no more"
		}
		shrink = append(shrink, Write{Delete, Own, have[name], nil, why})
	}
	return grow, shrink
}

// update adds the change of one slice, of all that there are.
func (r *regrouping) update(old, next *discoveryv1.EndpointSlice, all []*discoveryv1.EndpointSlice) {
	of := clustersOf(append(Fresh(next, all), Fresh(old, []*discoveryv1.EndpointSlice{next})...))
	if len(of) == 0 { // what is said of them has changed
		of = clustersOf(Parts(next))
	}
	c := change{Write{Update, Own, next, old, "follow the endpoints of " + join(of)}, old.Name, nil, readyIn(next) >= readyIn(old)}
	for _, p := range Parts(old) {
		if home := r.home[p.name()]; home != "" && home != old.Name {
			c.moves = append(c.moves, p.name())
		}
	}
	r.changes = append(r.changes, c)
}

// safe reports whether all that moves away with a change is where it is to be.
func (r *regrouping) safe(c change) bool {
	return !slices.ContainsFunc(r.changes, func(other change) bool {
		return slices.ContainsFunc(c.moves, func(part string) bool { return r.home[part] == other.name })
	})
}

// next takes the first change that is so.
func (r *regrouping) next(so func(change) bool) (Write, bool) {
	i := slices.IndexFunc(r.changes, so)
	if i < 0 {
		return Write{}, false
	}
	w := r.changes[i].Write
	r.changes = slices.Delete(r.changes, i, i+1)
	return w, true
}
