package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// Endpoints of several clusters share EndpointSlices, as Kubernetes' own
// controllers have those of several pods share them: what an API server and
// each node's proxy do at a Service grows with the slices more than with the
// endpoints. All decisions are made about parts, which are slices of one
// published slice each; only what is read and what is written is packed.

// Part is what an EndpointSlice has of one published slice of a cluster.
type Part struct {
	Cluster   ClusterID
	Slice     string // the name of the PublishedSlice
	Stale     string // see AnnotationStale
	Endpoints []discoveryv1.Endpoint
}

// Parts are what a slice that Service sync made is made of; none of another.
func Parts(s *discoveryv1.EndpointSlice) []Part {
	if s.Labels[discoveryv1.LabelManagedBy] != v1alpha1.ManagedBy {
		return nil
	}
	stale := strings.Split(s.Annotations[v1alpha1.AnnotationStale], ",")
	from := strings.Split(s.Annotations[v1alpha1.AnnotationFrom], ",")
	parts := make([]Part, 0, len(from))
	rest := s.Endpoints
	for _, f := range from {
		source, size, _ := strings.Cut(f, "=")
		cluster, name, ok := strings.Cut(source, "/")
		n, err := strconv.Atoi(size)
		if !ok || err != nil || n < 0 {
			// Somebody took away what it says: the label may still tell.
			return []Part{{Cluster: ClusterID(s.Labels[v1alpha1.LabelCluster]), Slice: s.Name, Stale: staleIn(stale, ""), Endpoints: s.Endpoints}}
		}
		n = min(n, len(rest))
		parts = append(parts, Part{ClusterID(cluster), name, staleIn(stale, cluster), rest[:n:n]})
		rest = rest[n:]
	}
	return parts
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

// part is a slice of what is imported from one published slice.
func (d *decision) part(id ClusterID, name string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{}
	s.Name, s.Namespace = partName(id, name), d.in.Service.Namespace
	s.Labels = map[string]string{v1alpha1.LabelCluster: string(id)}
	s.Annotations = map[string]string{v1alpha1.AnnotationFrom: from(id, name, 0)}
	return s
}

func partName(id ClusterID, slice string) string { return string(id) + "/" + slice }

// from is what AnnotationFrom says of one part.
func from(id ClusterID, slice string, endpoints int) string {
	return fmt.Sprintf("%s=%d", partName(id, slice), endpoints)
}

// unpack is the parts of the slices that there are, by name. One that is about to
// move is in two slices: the better one counts.
func (d *decision) unpack(have map[string]*discoveryv1.EndpointSlice) map[string]*discoveryv1.EndpointSlice {
	parts := make(map[string]*discoveryv1.EndpointSlice, len(have))
	for _, name := range slices.Sorted(maps.Keys(have)) {
		for _, p := range Parts(have[name]) {
			s := d.part(p.Cluster, p.Slice)
			s.AddressType, s.Ports, s.Endpoints = have[name].AddressType, have[name].Ports, p.Endpoints
			setAnnotation(&s.ObjectMeta, v1alpha1.AnnotationStale, p.Stale)
			if old := parts[s.Name]; old == nil || readyIn(old) < readyIn(s) {
				parts[s.Name] = s
			}
		}
	}
	return parts
}

// room is what is set aside for so many endpoints in a slice that holds most: a
// few more, so that not each that comes or goes moves those behind it to other
// slices.
func room(endpoints, most int) int { return min(max(endpoints+7, 8)/8*8, most) }

// pack puts parts into as few slices as hold them, in the order of their names:
// which slice has what depends on nothing else.
func (d *decision) pack(parts map[string]*discoveryv1.EndpointSlice) map[string]*discoveryv1.EndpointSlice {
	kinds := make(map[kind][]*discoveryv1.EndpointSlice)
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		k := kind{parts[name].AddressType, encodePorts(parts[name].Ports)}
		kinds[k] = append(kinds[k], parts[name])
	}
	packed := make(map[string]*discoveryv1.EndpointSlice, len(kinds))
	most := cmp.Or(d.cfg.PerSlice, perSlice)
	for k, of := range kinds {
		for n := 0; len(of) > 0; n++ {
			fit, left := 0, most
			for fit < len(of) && room(len(of[fit].Endpoints), most) <= left {
				left -= room(len(of[fit].Endpoints), most)
				fit++
			}
			s := d.together(of[:fit])
			s.Name = clip(d.in.Service.Name) + "-" + digest(string(k.family), k.ports, strconv.Itoa(n))
			packed[s.Name] = s
			of = of[fit:]
		}
	}
	return packed
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
		source, _, _ := strings.Cut(p.Annotations[v1alpha1.AnnotationFrom], "=")
		sources = append(sources, fmt.Sprintf("%s=%d", source, len(p.Endpoints)))
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
	if all := clustersIn(s); len(all) == 1 {
		s.Labels[v1alpha1.LabelCluster] = all[0]
	}
	d.belong(s)
	return s
}

// clustersIn are the clusters that a slice's endpoints are of.
func clustersIn(s *discoveryv1.EndpointSlice) []string {
	var all []string
	for _, p := range Parts(s) {
		all = append(all, string(p.Cluster))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// compareSlices says how to get from the slices that there are to those to
// have. More is done before anything else, less after it; and what moves is in
// the slice that it moves to before it leaves the other.
func compareSlices(have, want map[string]*discoveryv1.EndpointSlice) (grow, shrink []Write) {
	var changes []Write
	for _, name := range slices.Sorted(maps.Keys(want)) {
		next, old := want[name], have[name]
		of := join(clustersIn(next))
		if old == nil {
			changes = append(changes, Write{Create, Own, next, nil, "use endpoints of " + of})
			continue
		}
		next.ObjectMeta = merged(old.ObjectMeta, next.ObjectMeta)
		if !same(old, next) {
			changes = append(changes, Write{Update, Own, next, old, "follow the endpoints of " + of})
		}
	}
	for len(changes) > 0 {
		i := max(0, slices.IndexFunc(changes, func(w Write) bool { return !loses(w, changes) }))
		w := changes[i]
		changes = slices.Delete(changes, i, i+1)
		if old, ok := w.Before.(*discoveryv1.EndpointSlice); ok && (readyIn(want[old.Name]) < readyIn(old) || loses(w, shrink)) {
			shrink = append(shrink, w)
		} else {
			grow = append(grow, w)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if want[name] == nil {
			shrink = append(shrink, Write{Delete, Own, have[name], nil, "endpoints of " + join(clustersIn(have[name])) + " are used no more"})
		}
	}
	return grow, shrink
}

// loses reports whether a write takes a part out of its slice that one of the
// others puts into another.
func loses(w Write, others []Write) bool {
	before, ok := w.Before.(*discoveryv1.EndpointSlice)
	if !ok {
		return false
	}
	stays := partsOf(w.Object.(*discoveryv1.EndpointSlice))
	for _, part := range partsOf(before) {
		if slices.Contains(stays, part) {
			continue
		}
		for _, o := range others {
			if slices.Contains(partsOf(o.Object.(*discoveryv1.EndpointSlice)), part) {
				return true
			}
		}
	}
	return false
}

// partsOf are the names of a slice's parts.
func partsOf(s *discoveryv1.EndpointSlice) []string {
	var names []string
	for _, p := range Parts(s) {
		names = append(names, partName(p.Cluster, p.Slice))
	}
	return names
}
