package model

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// hint sets the hints of endpoints of other clusters, so that proxies prefer endpoints
// of their own cluster, or of their zone. Proxies ignore all hints if a single ready
// endpoint has none. Therefore all of them get hints, or none; and none if endpoints of
// this cluster lack them.
func hint(seen *view, all parts, notes *plan.Notes) {
	zones := make(map[*discoveryv1.Endpoint]string)
	local := seen.svc.Annotations[v1alpha1.AnnotationPrefer] == v1alpha1.PreferLocal
	wanted := local || seen.svc.Spec.TrafficDistribution != nil
	switch {
	case !wanted:
	case seen.ready > 0 && !ownHinted(seen):
		if local {
			notes.Warn("PreferLocalWithoutHints", "endpoints of this cluster have no zone hints, so that none are preferred: set trafficDistribution: PreferSameZone on the Service, and see that its nodes have zones")
		}
	case seen.ready == 0 && seen.svc.Spec.TrafficDistribution == nil:
		// There is no endpoint of this cluster to prefer.
	default:
		zones = zonesOf(all, local, seen.ready > 0)
	}
	for _, p := range all {
		for i := range p.Endpoints {
			e := &p.Endpoints[i]
			e.Hints = nil
			if zone := zones[e]; zone != "" {
				e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
			}
		}
	}
}

// zonesOf returns the zone to hint at for each ready endpoint of another cluster: its
// own zone, or, if endpoints of this cluster are preferred, the name of its cluster,
// because no node here is in such a zone. It returns none if an endpoint has no zone.
func zonesOf(all parts, local, ready bool) map[*discoveryv1.Endpoint]string {
	zones := make(map[*discoveryv1.Endpoint]string)
	for _, p := range all {
		for i := range p.Endpoints {
			e := &p.Endpoints[i]
			if !ptr.Deref(e.Conditions.Ready, false) {
				continue
			}
			zone := ptr.Deref(e.Zone, "")
			if ready && (local || zone == "") {
				zone = string(p.Cluster)
			}
			if zone == "" {
				return nil
			}
			zones[e] = zone
		}
	}
	return zones
}

// ownHinted reports whether all ready endpoints of this cluster have hints.
func ownHinted(seen *view) bool {
	for _, s := range seen.in.Local.Slices {
		if seen.have[s.Name] != nil || leftBehind(seen.svc, s) {
			continue
		}
		for _, e := range s.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) && (e.Hints == nil || len(e.Hints.ForZones) == 0) {
				return false
			}
		}
	}
	return true
}
