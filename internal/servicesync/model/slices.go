package model

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// imported is the part for a published slice of a cluster.
func (d *decision) imported(id ClusterID, p *v1alpha1.PublishedSlice) *discoveryv1.EndpointSlice {
	s := d.part(id, p.Name)
	s.AddressType = p.Spec.AddressType
	for _, port := range p.Spec.Ports {
		s.Ports = append(s.Ports, *port.DeepCopy())
	}
	for _, e := range d.endpointsOf(id, p) {
		if !d.held(e.address) {
			s.Endpoints = append(s.Endpoints, importedEndpoint(e))
		}
	}
	return s
}

// belong marks a slice as one of the Service.
func (d *decision) belong(s *discoveryv1.EndpointSlice) {
	if d.svc.Spec.ClusterIP == corev1.ClusterIPNone {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: d.svc.Name, UID: d.svc.UID}}
}

// unexpired is a slice, or a part, as it was before it was marked as expired.
func unexpired(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s = s.DeepCopy()
	if s.Annotations[v1alpha1.AnnotationStale] == v1alpha1.StaleExpired {
		for i := range s.Endpoints {
			c := &s.Endpoints[i].Conditions
			c.Ready, c.Terminating = ptr(deref(c.Ready) || deref(c.Serving)), ptr(false)
		}
	}
	return s
}

// held reports whether the cluster's own endpoints hold an address: where pod
// ranges overlap, the address means the own pod here.
func (d *decision) held(address string) bool {
	for _, endpoints := range d.own {
		if _, ok := endpoints[address]; ok {
			d.warn("AddressTwice", "an endpoint of another cluster has the address "+address+" of one of this cluster, and is left out: their pod ranges overlap")
			return true
		}
	}
	return false
}

// endpointsOf are the endpoints of a cluster's slice that are used.
func (d *decision) endpointsOf(id ClusterID, p *v1alpha1.PublishedSlice) []endpoint {
	all := ungrouped(p)
	if id != d.cfg.Cluster {
		all = d.reachable(id, p.Spec.AddressType, all)
	}
	if len(all) > perSlice {
		d.warn("TooManyEndpoints", fmt.Sprintf("%s publishes %d endpoints in the slice %s: only the first %d are used", id, len(all), p.Name, perSlice))
		return all[:perSlice]
	}
	return all
}

// reachable leaves of a peer's endpoints those whose addresses it may publish.
func (d *decision) reachable(id ClusterID, family discoveryv1.AddressType, all []endpoint) []endpoint {
	trust := d.cfg.Trust.Of(id)
	return slices.DeleteFunc(all, func(e endpoint) bool {
		if (family == discoveryv1.AddressTypeIPv6) == strings.Contains(e.address, ":") && trust.reaches(e.address, d.cfg.Reserved) {
			return false
		}
		d.refused(id, e.address)
		return true
	})
}

// refused says once for each peer that an address is left out.
func (d *decision) refused(id ClusterID, address string) {
	const reason = "AddressNotAllowed"
	said := string(id) + " publishes "
	if !slices.ContainsFunc(d.result.Events, func(e Event) bool { return e.Reason == reason && strings.HasPrefix(e.Note, said) }) {
		d.warn(reason, fmt.Sprintf("%sthe address %.60q, which it may not: the endpoint is left out; see --peer-ranges, and --pod-ranges for this cluster's own", said, address))
	}
}

func importedEndpoint(e endpoint) discoveryv1.Endpoint {
	out := discoveryv1.Endpoint{
		Addresses:  []string{e.address},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr(e.ready), Serving: ptr(e.serving), Terminating: ptr(e.terminating)},
	}
	if e.hostname != "" {
		out.Hostname = ptr(e.hostname)
	}
	if e.zone != "" {
		out.Zone = ptr(e.zone)
	}
	return out
}

// countPublished counts the endpoints of published slices by their addresses; of
// a dual-stack Service, whose endpoints are in two, the family with the most.
func countPublished(all []*v1alpha1.PublishedSlice) int {
	most, families := 0, make(map[discoveryv1.AddressType]map[string]bool)
	for _, s := range all {
		family := families[s.Spec.AddressType]
		if family == nil {
			family = make(map[string]bool)
			families[s.Spec.AddressType] = family
		}
		for _, g := range s.Spec.Endpoints {
			for _, address := range g.Addresses {
				family[address] = true
			}
		}
		most = max(most, len(family))
	}
	return most
}

// hint tells proxies to prefer endpoints of the own cluster, or of their zone.
// Hints are all or nothing: one ready endpoint without any and they are
// ignored. So those of other clusters have some exactly if the own ones do.
func (d *decision) hint() {
	d.unhint()
	local := d.svc.Annotations[v1alpha1.AnnotationPrefer] == v1alpha1.PreferLocal
	zones := d.svc.Spec.TrafficDistribution != nil
	if !local && !zones {
		return
	}
	if d.ready > 0 && !d.ownHinted() {
		if local {
			d.warn("PreferLocalWithoutHints", "endpoints of this cluster have no zone hints, so that none are preferred: set trafficDistribution: PreferSameZone on the Service, and see that its nodes have zones")
		}
		return
	}
	if d.ready == 0 && !zones {
		return // there is nothing to prefer
	}
	zoneOf := func(s *discoveryv1.EndpointSlice, e discoveryv1.Endpoint) string {
		if d.ready > 0 && (local || deref(e.Zone) == "") {
			return s.Labels[v1alpha1.LabelCluster] // no node is there
		}
		return deref(e.Zone)
	}
	for _, s := range d.slices {
		for i, e := range s.Endpoints {
			if !deref(e.Conditions.Ready) {
				continue
			}
			zone := zoneOf(s, e)
			if zone == "" {
				d.unhint()
				return
			}
			s.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		}
	}
}

// unhint takes all hints away.
func (d *decision) unhint() {
	for _, s := range d.slices {
		for i := range s.Endpoints {
			s.Endpoints[i].Hints = nil
		}
	}
}

// ownHinted reports whether all ready endpoints of the cluster have hints.
func (d *decision) ownHinted() bool {
	for _, s := range d.in.Local.Slices {
		if d.have[s.Name] != nil || d.leftBehind(s) {
			continue
		}
		for _, e := range s.Endpoints {
			if (e.Conditions.Ready == nil || *e.Conditions.Ready) && (e.Hints == nil || len(e.Hints.ForZones) == 0) {
				return false
			}
		}
	}
	return true
}

// same reports whether two objects are stored as the same bytes, in which what is
// absent and what is empty are one. It takes a tenth of what a comparison by
// reflection does, and nearly all passes come to nothing more.
func same[T interface{ Marshal() ([]byte, error) }](a, b T) bool {
	x, errX := a.Marshal()
	y, errY := b.Marshal()
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func readyIn(s *discoveryv1.EndpointSlice) int {
	n := 0
	for _, e := range s.Endpoints {
		if deref(e.Conditions.Ready) {
			n++
		}
	}
	return n
}

// merged is what there is, with the labels, annotations and owners to have.
func merged(old, want metav1.ObjectMeta) metav1.ObjectMeta {
	next := *old.DeepCopy()
	next.Labels, next.Annotations, next.OwnerReferences = want.Labels, want.Annotations, want.OwnerReferences
	return next
}

// leftOvers are what Kubernetes leaves behind when a selector is taken away.
func (d *decision) leftOvers() []Object {
	if d.svc == nil {
		return nil
	}
	if d.leftIsAll() {
		d.result.Facts.Kept = true
		return nil
	}
	var left []Object
	// The Endpoints go first: as long as they are there, Kubernetes mirrors them
	// to a new slice for each that is deleted.
	if e := d.in.Local.Endpoints; e != nil && len(d.svc.Spec.Selector) == 0 && d.svc.Annotations[v1alpha1.AnnotationSelector] != "" &&
		(e.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" || e.Annotations["endpoints.kubernetes.io/last-change-trigger-time"] != "") {
		left = append(left, e)
	}
	for _, s := range d.in.Local.Slices {
		if d.leftBehind(s) {
			left = append(left, s)
		}
	}
	return left
}

// leftIsAll reports whether what is left behind is ready, and nothing else is
// in use: whoever was to give instead has gone, too. Then it stays until
// somebody gives.
func (d *decision) leftIsAll() bool {
	left, now := 0, 0
	for _, s := range d.in.Local.Slices {
		if d.leftBehind(s) {
			left += readyIn(s)
		}
	}
	for _, s := range d.ours {
		now += readyIn(s)
	}
	return left > 0 && (now == 0 || d.slices != nil && d.readyAmong(d.slices) == 0)
}
