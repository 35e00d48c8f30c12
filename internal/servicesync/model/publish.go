package model

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// publication is what this cluster should publish of the Service.
type publication struct {
	// service is nil if nothing is to be published.
	service *v1alpha1.PublishedServiceSpec
	// slices are all slices to publish, by name. Invariant: empty if service is nil or
	// its role has no endpoints that other clusters may use.
	slices map[string]v1alpha1.PublishedEndpoints
}

// publish decides what this cluster publishes of the Service.
func publish(seen *view, next next, answers []v1alpha1.Seen) publication {
	me := seen.me.PublishedServiceSpec
	me.Seen, me.Handover = answers, next.handover
	switch {
	case seen.shared && seen.svc != nil && publishes(seen, next):
		if seen.in.Published.Service == nil && next.changes(seen) {
			// The Service is updated before it is published for the first time, and so
			// published as it is then. look has noted a mode that is unknown.
			_ = describe(seen.cfg.Carry, next.service, &me)
		}
	case len(answers) == 0:
		return publication{}
	case seen.svc == nil || !seen.shared:
		me.Role, me.Handover, me.Template, me.Exported = v1alpha1.RoleNone, nil, nil, nil
		me.Ready, me.Total, me.Mode, me.Asked, me.To, me.Replica = 0, 0, "", false, "", false
	}
	pub := publication{service: &me}
	if clusterset.Gives(me.Role) || me.Role == v1alpha1.RoleCandidate {
		pub.slices = endpointslice.Pack(seen.in.Service, seen.own, seen.in.Published.All())
		if me.Slices = inline(seen, pub.slices); len(me.Slices) > 0 {
			me.FormatVersion = v1alpha1.FormatVersion
		}
	}
	return pub
}

// publishes reports whether the Service itself is published, not only answers. Replicas
// are not, unless they take part in giving endpoints or in a change of roles.
func publishes(seen *view, next next) bool {
	if seen.me.Mode != v1alpha1.ModeNone || seen.me.Asked || next.handover != nil || seen.me.Exported != nil {
		return true
	}
	if !seen.me.Replica {
		return !seen.cfg.ExportedOnly || seen.me.Role != v1alpha1.RoleSource
	}
	return seen.me.Role != v1alpha1.RoleReceiver || len(seen.own) > 0
}

// inlineSlices is how many slices a PublishedService holds at most. If a Service has
// endpoints of more kinds, the slices of the other kinds are objects of their own.
const inlineSlices = 4

// inline returns the slices to publish in the PublishedService itself: the first of
// each kind, as long as there is room. A slice that is published already stays in the
// object that holds it.
func inline(seen *view, published map[string]v1alpha1.PublishedEndpoints) []v1alpha1.InlineSlice {
	within := make(map[string]v1alpha1.PublishedEndpoints)
	if stored := seen.in.Published.Service; stored != nil {
		for _, s := range stored.Spec.Slices {
			if _, stays := published[s.Name]; stays {
				within[s.Name] = s.PublishedEndpoints
			}
		}
	}
	apart := func(name string) bool {
		return slices.ContainsFunc(seen.in.Published.Slices, func(s *v1alpha1.PublishedSlice) bool { return s.Name == name })
	}
	room := inlineSlices - len(within)
	var all []v1alpha1.InlineSlice
	for _, name := range sortedNames(published) {
		old, stays := within[name]
		if !stays {
			if seen.cfg.Apart || room <= 0 || !strings.HasSuffix(name, "-0") || apart(name) {
				continue
			}
			room--
		}
		all = append(all, v1alpha1.InlineSlice{Name: name, PublishedEndpoints: stamped(seen.in.Now, old, published[name])})
	}
	return all
}

// stamped returns endpoints with the time of their last change: now, unless they equal
// the old ones.
func stamped(now time.Time, old, endpoints v1alpha1.PublishedEndpoints) v1alpha1.PublishedEndpoints {
	endpoints.Changed = old.Changed
	if !equality.Semantic.DeepEqual(old, endpoints) {
		endpoints.Changed = &metav1.MicroTime{Time: now.Truncate(time.Microsecond)}
	}
	return endpoints
}

// planPublished orders the writes so that a reader that has seen some of them lacks no
// endpoint that is neither gone nor replaced: first what is added, then the Service,
// then what is taken away.
func planPublished(seen *view, pub publication) []Write {
	stored := make(map[string]*v1alpha1.PublishedSlice)
	for _, s := range seen.in.Published.Slices {
		stored[s.Name] = s
	}
	apart := maps.Clone(pub.slices)
	if pub.service != nil {
		for _, s := range pub.service.Slices {
			delete(apart, s.Name)
		}
	}
	var grow, shrink []Write
	for _, name := range sortedNames(apart) {
		old := stored[name]
		delete(stored, name)
		w, grows := planSlice(seen, name, old, apart[name])
		switch {
		case w.Object == nil:
		case grows:
			grow = append(grow, w)
		default:
			shrink = append(shrink, w)
		}
	}
	all := slices.Concat(grow, planPublishedService(seen, pub), shrink)
	for _, name := range sortedNames(stored) {
		all = append(all, plan.Deleted(stored[name], "these endpoints are no longer published").In(Publications))
	}
	return all
}

// planSlice returns the write of one PublishedSlice, and whether it leaves at least as
// many endpoints in it as before. The write has no object if nothing changes. old is
// nil if the slice does not exist.
func planSlice(seen *view, name string, old *v1alpha1.PublishedSlice, endpoints v1alpha1.PublishedEndpoints) (w Write, grows bool) {
	var before v1alpha1.PublishedSliceSpec
	if old != nil {
		before = old.Spec
	}
	next := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{
		Cluster: string(seen.cfg.Cluster), Service: seen.me.Service, PublishedEndpoints: stamped(seen.in.Now, before.PublishedEndpoints, endpoints),
	}}
	switch {
	case equality.Semantic.DeepEqual(before, next.Spec):
		return Write{}, false
	case old == nil:
		next.Name, next.Namespace, next.Labels = name, seen.cfg.Namespace, publicationLabels(seen)
		return plan.Created(next, "publish endpoints").In(Publications), true
	default:
		next.ObjectMeta = *old.ObjectMeta.DeepCopy()
		return plan.Updated(old, next, "publish changed endpoints").In(Publications), endpointslice.Size(next) >= endpointslice.Size(old)
	}
}

func planPublishedService(seen *view, pub publication) []Write {
	old := seen.in.Published.Service
	switch {
	case pub.service == nil && old == nil:
	case pub.service == nil:
		return []Write{plan.Deleted(old, "there is nothing to publish any more").In(Publications)}
	case old == nil:
		next := &v1alpha1.PublishedService{Spec: *pub.service}
		next.Name, next.Namespace, next.Labels = clusterset.PublicationName(seen.in.Service), seen.cfg.Namespace, publicationLabels(seen)
		return []Write{plan.Created(next, "publish the Service").In(Publications)}
	case !equality.Semantic.DeepEqual(old.Spec, *pub.service):
		next := old.DeepCopy()
		next.Spec = *pub.service
		return []Write{plan.Updated(old, next, "publish the changed Service").In(Publications)}
	}
	return nil
}

func publicationLabels(seen *view) map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster:   string(seen.cfg.Cluster),
		v1alpha1.LabelNamespace: seen.in.Service.Namespace,
		v1alpha1.LabelService:   seen.in.Service.Name,
	}
}
