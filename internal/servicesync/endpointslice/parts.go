package endpointslice

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// Endpoints of several clusters share EndpointSlices, as Kubernetes' own controllers
// let endpoints of several pods share them: the work of an API server and of each
// node's proxy for a Service grows with the number of slices more than with that of
// endpoints. Decisions are made about parts. Only what is read is taken apart
// (Unbundle), and only what is written is put together (Bundle).

// Part holds the endpoints that an EndpointSlice has of one published slice.
type Part struct {
	Cluster clusterset.ID
	Slice   string // the name of the published slice
	Stale   string // how old the endpoints are; see AnnotationStale
	// AddressType and Ports are those of the EndpointSlice; Parts leaves them empty.
	AddressType discoveryv1.AddressType
	Ports       []discoveryv1.EndpointPort
	Endpoints   []discoveryv1.Endpoint
}

// Parts returns the parts of a slice that service sync made; none of any other slice.
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
			// Somebody has removed or changed the annotation: the label may still tell
			// the cluster.
			return []Part{{Cluster: clusterset.ID(s.Labels[v1alpha1.LabelCluster]), Slice: s.Name, Stale: staleIn(stale, ""), Endpoints: s.Endpoints}}
		}
		n = min(n, len(rest))
		parts = append(parts, Part{Cluster: clusterset.ID(cluster), Slice: slice, Stale: staleIn(stale, cluster), Endpoints: rest[:n:n]})
		rest = rest[n:]
	}
	return parts
}

// Name returns the name of the part, which no other part of the Service has.
func (p Part) Name() string { return string(p.Cluster) + "/" + p.Slice }

// Source returns the entry of the part in AnnotationFrom.
func (p Part) Source() string { return p.Name() + "=" + strconv.Itoa(len(p.Endpoints)) }

// Unexpired returns a copy of the part without the marks of Expire.
func (p Part) Unexpired() *Part {
	s := (&discoveryv1.EndpointSlice{Ports: p.Ports, Endpoints: p.Endpoints}).DeepCopy()
	p.Ports, p.Endpoints = s.Ports, s.Endpoints
	if p.Stale == v1alpha1.StaleExpired {
		Unexpire(p.Endpoints)
	}
	return &p
}

// Fresh returns the parts of a slice that none of the other slices has with the same
// endpoints.
func Fresh(s *discoveryv1.EndpointSlice, others []*discoveryv1.EndpointSlice) []Part {
	fresh := Parts(s)
	for _, other := range others {
		if len(fresh) == 0 {
			break
		}
		for _, old := range Parts(other) {
			fresh = slices.DeleteFunc(fresh, func(p Part) bool {
				return p.Name() == old.Name() && equality.Semantic.DeepEqual(p.Endpoints, old.Endpoints)
			})
		}
	}
	return fresh
}

// staleIn returns the mark of a cluster. The marks of a slice are either one mark, for
// all of its clusters, or a list of CLUSTER=MARK.
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

// Unbundle returns the parts of slices, by name. A part that was about to move is in
// two slices: the one with more ready endpoints counts, then the one with more.
func Unbundle(have map[string]*discoveryv1.EndpointSlice) map[string]*Part {
	parts := make(map[string]*Part, len(have))
	for _, name := range slices.Sorted(maps.Keys(have)) {
		for _, p := range Parts(have[name]) {
			p.AddressType, p.Ports = have[name].AddressType, have[name].Ports
			old := parts[p.Name()]
			if old == nil || cmp.Or(cmp.Compare(Ready(old.Endpoints), Ready(p.Endpoints)), cmp.Compare(len(old.Endpoints), len(p.Endpoints))) < 0 {
				parts[p.Name()] = &p
			}
		}
	}
	return parts
}

// spare is the step in which the room that is reserved for a part grows. A rollout
// adds endpoints for a while, and moves the parts behind this one to other slices
// only if their number reaches a multiple of spare: 8, 16, 24, and so on.
const spare = 8

// room returns how many endpoints are reserved for a part with so many, in a slice
// that holds most.
func room(endpoints, most int) int { return min((endpoints/spare+1)*spare, most) }

// Bundle puts parts of a Service into few slices with at most so many endpoints each,
// in the order of the parts' names. A part that leaves no room for another has a slice
// of its own. The result depends on nothing else, so that each decision about the same
// parts writes the same slices.
func Bundle(service *corev1.Service, parts map[string]*Part, most int) map[string]*discoveryv1.EndpointSlice {
	bundled := make(map[string]*discoveryv1.EndpointSlice)
	add := func(parts []*Part, name ...string) {
		s := together(service, parts)
		s.Name = clusterset.Clip(service.Name) + "-" + clusterset.Digest(append(name, service.Name)...)
		bundled[s.Name] = s
	}
	kinds := make(map[Kind][]*Part)
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		p := parts[name]
		k := Kind{p.AddressType, EncodePorts(p.Ports)}
		if room(len(p.Endpoints), most) > most-spare {
			add([]*Part{p}, string(k.Family), k.Ports, name)
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
			add(of[:fit], string(k.Family), k.Ports, strconv.Itoa(n))
			of = of[fit:]
		}
	}
	return bundled
}

// together returns one slice with parts of one kind.
func together(service *corev1.Service, parts []*Part) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: parts[0].AddressType, Ports: parts[0].Ports}
	s.Namespace = service.Namespace
	s.Labels = map[string]string{
		discoveryv1.LabelServiceName: service.Name,
		discoveryv1.LabelManagedBy:   v1alpha1.ManagedBy,
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID}}
	var sources, clusters []string
	for _, p := range parts {
		sources = append(sources, p.Source())
		clusters = append(clusters, string(p.Cluster))
		s.Endpoints = append(s.Endpoints, p.Endpoints...)
	}
	s.Annotations = map[string]string{v1alpha1.AnnotationFrom: strings.Join(sources, ",")}
	SetStale(s, staleOf(parts))
	if slices.Sort(clusters); len(slices.Compact(clusters)) == 1 {
		s.Labels[v1alpha1.LabelCluster] = clusters[0]
	}
	return s
}

// staleOf returns the value of AnnotationStale for a slice of these parts.
func staleOf(parts []*Part) string {
	var marks []string
	same := true
	for _, p := range parts {
		same = same && p.Stale == parts[0].Stale
		if m := string(p.Cluster) + "=" + p.Stale; p.Stale != "" && !slices.Contains(marks, m) {
			marks = append(marks, m)
		}
	}
	if same {
		return parts[0].Stale
	}
	return strings.Join(marks, ",")
}

// clustersOf returns the clusters that parts come from, each once, in order.
func clustersOf(parts []Part) []string {
	var all []string
	for _, p := range parts {
		all = append(all, string(p.Cluster))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
