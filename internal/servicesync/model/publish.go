package model

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// template is the Service as a replica needs it.
func (d *decision) template(s *corev1.Service) *v1alpha1.ServiceTemplate {
	t := &v1alpha1.ServiceTemplate{
		Created:                       s.CreationTimestamp,
		Labels:                        carried(d.cfg.Carry.Labels, s.Labels),
		Annotations:                   carried(d.cfg.Carry.Annotations, s.Annotations),
		Type:                          s.Spec.Type,
		Headless:                      s.Spec.ClusterIP == corev1.ClusterIPNone,
		ExternalName:                  s.Spec.ExternalName,
		Selector:                      selectorOf(s),
		SessionAffinity:               s.Spec.SessionAffinity,
		SessionAffinityConfig:         s.Spec.SessionAffinityConfig.DeepCopy(),
		IPFamilies:                    slices.Clone(s.Spec.IPFamilies),
		InternalTrafficPolicy:         clone(s.Spec.InternalTrafficPolicy),
		ExternalTrafficPolicy:         s.Spec.ExternalTrafficPolicy,
		TrafficDistribution:           clone(s.Spec.TrafficDistribution),
		PublishNotReadyAddresses:      s.Spec.PublishNotReadyAddresses,
		LoadBalancerClass:             clone(s.Spec.LoadBalancerClass),
		AllocateLoadBalancerNodePorts: clone(s.Spec.AllocateLoadBalancerNodePorts),
		LoadBalancerSourceRanges:      slices.Clone(s.Spec.LoadBalancerSourceRanges),
	}
	if t.Type == "" {
		t.Type = corev1.ServiceTypeClusterIP
	}
	for _, p := range s.Spec.Ports {
		p.NodePort = 0
		p.AppProtocol = clone(p.AppProtocol)
		t.Ports = append(t.Ports, p)
	}
	if s.Annotations[v1alpha1.AnnotationImportType] == string(corev1.ServiceTypeClusterIP) && t.Type != corev1.ServiceTypeExternalName {
		t.Type, t.ExternalTrafficPolicy = corev1.ServiceTypeClusterIP, ""
		t.LoadBalancerClass, t.AllocateLoadBalancerNodePorts, t.LoadBalancerSourceRanges = nil, nil, nil
	}
	return t
}

// bound reports whether a label or an annotation says something about the object
// where it is, and so never goes along.
func bound(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	switch domain {
	case v1alpha1.GroupName, "endpoints.kubernetes.io", "endpointslice.kubernetes.io":
		return true
	case "meta.helm.sh", "argocd.argoproj.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io":
		return true // a replica is nobody's release: a tool that finds its mark would delete it
	}
	return key == v1alpha1.AnnotationModeCompat || key == corev1.LastAppliedConfigAnnotation
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// publish decides what the cluster publishes of the Service.
func (d *decision) publish() {
	me := d.me.PublishedServiceSpec
	me.Seen, me.Handover = d.seen, d.handover
	switch {
	case d.inScope && d.svc != nil && d.toPublish():
		if d.in.Published.Service == nil && d.serviceChanges() {
			// Its own update comes first: what is published of it is true by then.
			_ = d.describe(&me, d.service) // a mode that is unknown was said
		}
	case len(d.seen) == 0:
		return
	case d.svc == nil || !d.inScope:
		me.Role, me.Handover, me.Template, me.Exported = v1alpha1.RoleNone, nil, nil, nil
		me.Ready, me.Total, me.Mode, me.Asked, me.To, me.Replica = 0, 0, "", false, "", false
	}
	if gives(me.Role) || me.Role == v1alpha1.RoleCandidate {
		d.published = pack(d.in.Service, d.own, d.in.Published.All())
		if me.Slices = d.inline(); len(me.Slices) > 0 {
			me.FormatVersion = v1alpha1.FormatVersion
		}
	}
	d.publication = &me
}

// inlineSlices is how many slices a PublishedService holds at most: of a Service
// with more kinds of endpoints, those of the rest are apart.
const inlineSlices = 4

// inline are the slices to publish in the PublishedService itself: the first one of
// each kind, as long as there is room. One that is published already stays where it is.
func (d *decision) inline() []v1alpha1.InlineSlice {
	there := make(map[string]v1alpha1.PublishedEndpoints)
	if stored := d.in.Published.Service; stored != nil {
		for _, s := range stored.Spec.Slices {
			if _, stays := d.published[s.Name]; stays {
				there[s.Name] = s.PublishedEndpoints
			}
		}
	}
	apart := func(name string) bool {
		return slices.ContainsFunc(d.in.Published.Slices, func(s *v1alpha1.PublishedSlice) bool { return s.Name == name })
	}
	room := inlineSlices - len(there)
	var all []v1alpha1.InlineSlice
	for _, name := range slices.Sorted(maps.Keys(d.published)) {
		old, stays := there[name]
		if !stays {
			if d.cfg.Apart || room <= 0 || !strings.HasSuffix(name, "-0") || apart(name) {
				continue
			}
			room--
		}
		all = append(all, v1alpha1.InlineSlice{Name: name, PublishedEndpoints: d.stamped(old, d.published[name])})
	}
	return all
}

// stamped are endpoints with the time of their last change, which is now unless
// nothing in them has changed.
func (d *decision) stamped(old, now v1alpha1.PublishedEndpoints) v1alpha1.PublishedEndpoints {
	now.Changed = old.Changed
	if !equality.Semantic.DeepEqual(old, now) {
		now.Changed = &metav1.MicroTime{Time: d.in.Now.Truncate(time.Microsecond)}
	}
	return now
}

// toPublish reports whether the Service itself is published, rather than
// answers only. A plain replica is not.
func (d *decision) toPublish() bool {
	if d.me.Mode != v1alpha1.ModeNone || d.me.Asked || d.handover != nil || d.me.Exported != nil {
		return true
	}
	if !d.me.Replica {
		return !d.cfg.ExportedOnly || d.me.Role != v1alpha1.RoleSource
	}
	return d.me.Role != v1alpha1.RoleReceiver || len(d.own) > 0
}

func (d *decision) publicationLabels() map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster:   string(d.cfg.Cluster),
		v1alpha1.LabelNamespace: d.in.Service.Namespace,
		v1alpha1.LabelService:   d.in.Service.Name,
	}
}

// planPublication orders the writes so that whoever reads any prefix of them
// sees no endpoint missing that is neither gone nor replaced: what is added
// first, then the Service, then what is taken away.
func (d *decision) planPublication() {
	have := make(map[string]*v1alpha1.PublishedSlice)
	for _, s := range d.in.Published.Slices {
		have[s.Name] = s
	}
	apart := maps.Clone(d.published)
	if d.publication != nil {
		for _, s := range d.publication.Slices {
			delete(apart, s.Name)
		}
	}
	var grow, shrink []Write
	for _, name := range slices.Sorted(maps.Keys(apart)) {
		old, exists := have[name]
		delete(have, name)
		if !exists {
			old = &v1alpha1.PublishedSlice{}
		}
		next := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{
			Cluster: string(d.cfg.Cluster), Service: d.me.Service, PublishedEndpoints: d.stamped(old.Spec.PublishedEndpoints, apart[name]),
		}}
		if equality.Semantic.DeepEqual(old.Spec, next.Spec) {
			continue
		}
		if !exists {
			next.Name, next.Namespace, next.Labels = name, d.cfg.Namespace, d.publicationLabels()
			grow = append(grow, Write{Create, Publications, next, nil, "publish endpoints"})
			continue
		}
		next.ObjectMeta = *old.ObjectMeta.DeepCopy()
		w := Write{Update, Publications, next, old, "publish changed endpoints"}
		if size(next) >= size(old) {
			grow = append(grow, w)
		} else {
			shrink = append(shrink, w)
		}
	}
	d.writes = append(d.writes, grow...)
	d.planPublishedService()
	d.writes = append(d.writes, shrink...)
	for _, name := range slices.Sorted(maps.Keys(have)) {
		d.writes = append(d.writes, Write{Delete, Publications, have[name], nil, "these endpoints are no longer published"})
	}
}

func (d *decision) planPublishedService() {
	old := d.in.Published.Service
	switch {
	case d.publication == nil && old == nil:
	case d.publication == nil:
		d.writes = append(d.writes, Write{Delete, Publications, old, nil, "there is nothing to publish any more"})
	case old == nil:
		next := &v1alpha1.PublishedService{Spec: *d.publication}
		next.Name, next.Namespace, next.Labels = PublicationName(d.in.Service), d.cfg.Namespace, d.publicationLabels()
		d.writes = append(d.writes, Write{Create, Publications, next, nil, "publish the Service"})
	case !equality.Semantic.DeepEqual(old.Spec, *d.publication):
		next := old.DeepCopy()
		next.Spec = *d.publication
		d.writes = append(d.writes, Write{Update, Publications, next, old, "publish the changed Service"})
	}
}
