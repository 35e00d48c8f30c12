package mcs

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/admission"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
)

// slices returns the import's slices: the endpoints of all exporters, and of the
// clusters that give endpoints in place of an exporter that has handed over.
func (d *decision) slices() map[string]*discoveryv1.EndpointSlice {
	want := make(map[string]*discoveryv1.EndpointSlice)
	exports, handedOver := make(map[clusterset.ID]bool), false
	for _, m := range d.exporters {
		exports[m.ID] = true
		handedOver = handedOver || m.Role == v1alpha1.RoleReceiver
	}
	if me := d.Here.Member; exports[me.ID] || handedOver && me.Gives() && (me.Replica || d.Here.Annotated) {
		for name, endpoints := range d.Here.Slices {
			p := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{PublishedEndpoints: endpoints}}
			p.Name = name
			s := d.slice(me.ID, p, admission.Bounded(me.ID, p, endpointslice.Ungrouped(p), &d.notes))
			want[s.Name] = s
		}
	}
	incomplete := make(map[clusterset.ID]bool)
	for _, m := range d.Others {
		if !exports[m.ID] && !(handedOver && m.Gives()) {
			continue
		}
		published := d.Peers[m.ID].Published
		all := published.All()
		incomplete[m.ID] = !published.Whole(all)
		for _, p := range all {
			if p.Spec.AddressType != discoveryv1.AddressTypeFQDN {
				s := d.slice(m.ID, p, d.Rules.Endpoints(m.ID, p, &d.notes))
				want[s.Name] = s
			}
		}
	}
	d.retain(want, incomplete)
	d.markStale(want)
	return want
}

// retain adds the slices that exist of clusters of which it is not known, or not yet
// completely, what they publish.
func (d *decision) retain(want map[string]*discoveryv1.EndpointSlice, incomplete map[clusterset.ID]bool) {
	for _, s := range d.Here.DerivedSlices {
		id := clusterset.ID(s.Labels[v1alpha1.LabelCluster])
		p, known := d.Peers[id]
		missing := !known || p.Unheard() || incomplete[id] && want[s.Name] == nil
		if s.Labels[discoveryv1.LabelManagedBy] != v1alpha1.ManagedBy || id == d.Here.Member.ID || !missing || p.Forgotten {
			continue
		}
		s = s.DeepCopy()
		if s.Annotations[v1alpha1.AnnotationStale] == v1alpha1.StaleExpired {
			endpointslice.Unexpire(s.Endpoints)
		}
		want[s.Name] = s
	}
}

// markStale marks the endpoints of clusters whose lease is stale or expired.
func (d *decision) markStale(all map[string]*discoveryv1.EndpointSlice) {
	health := func(s *discoveryv1.EndpointSlice) clusterset.Health {
		return d.Peers[clusterset.ID(s.Labels[v1alpha1.LabelCluster])].Health
	}
	ready := 0
	for _, s := range all {
		if s.Labels[v1alpha1.LabelCluster] != "" && health(s) != clusterset.Expired {
			ready += endpointslice.Ready(s.Endpoints)
		}
	}
	for _, s := range all {
		if health(s) == clusterset.Expired {
			endpointslice.Expire(s.Endpoints, ready > 0)
		}
		endpointslice.SetStale(s, health(s).Mark())
	}
}

// slice returns the import's slice for a published slice.
func (d *decision) slice(id clusterset.ID, p *v1alpha1.PublishedSlice, endpoints []endpointslice.Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: p.Spec.AddressType}
	s.Name = DerivedName(d.Service) + "-" + clusterset.Digest(string(id), p.Name)
	s.Namespace = d.Service.Namespace
	s.Labels = map[string]string{
		discoveryv1.LabelServiceName:  DerivedName(d.Service),
		discoveryv1.LabelManagedBy:    v1alpha1.ManagedBy,
		mcsv1beta1.LabelServiceName:   d.Service.Name,
		mcsv1beta1.LabelSourceCluster: string(id),
		v1alpha1.LabelCluster:         string(id),
	}
	if d.exporters[0].Template.Headless {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	for _, port := range p.Spec.Ports {
		s.Ports = append(s.Ports, *port.DeepCopy())
	}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, e.Imported())
	}
	s.Annotations = map[string]string{v1alpha1.AnnotationFrom: endpointslice.Part{Cluster: id, Slice: p.Name, Endpoints: s.Endpoints}.Source()}
	if d.Here.Import != nil {
		s.OwnerReferences = d.owner()
	}
	return s
}

func (d *decision) writeSlices(want map[string]*discoveryv1.EndpointSlice) {
	have := make(map[string]*discoveryv1.EndpointSlice)
	for _, s := range d.Here.DerivedSlices {
		if s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy {
			have[s.Name] = s
		}
	}
	grow, shrink := endpointslice.Writes(have, want)
	d.writes = append(append(d.writes, grow...), shrink...)
}
