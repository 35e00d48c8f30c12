// Package admission says how much of a peer's publications is used in this cluster.
// It never decides what becomes of a Service. Every later step sees only what it
// admits, so a field that is not copied here has no way into this cluster.
package admission

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
	"github.com/xbernetes/xbernetes/internal/servicesync/template"
)

// Bounds of what is used of one Service of one peer.
const (
	mostSlices = 200 // 20,000 endpoints
	mostSeen   = 1000
)

// Rules are what a cluster admits of its peers.
type Rules struct {
	// Trust is what each peer may do.
	Trust clusterset.Trusts
	// Reserved are this cluster's own addresses, which no endpoint of a peer may have
	// unless the peer's Trust lists ranges.
	Reserved []netip.Prefix
	// Carry lists the labels and annotations that are admitted.
	Carry template.Carry
}

// Admit returns as much of every peer's publications of a Service as the peer may
// publish, and notes what it left out.
//
// It refuses a whole publication if a part of it is not as this program writes it: a
// single field that the API server refuses would block the endpoints of the other
// clusters as well.
func (r Rules) Admit(service types.NamespacedName, peers map[clusterset.ID]clusterset.Peer) (map[clusterset.ID]clusterset.Peer, plan.Notes) {
	var notes plan.Notes
	admitted := make(map[clusterset.ID]clusterset.Peer, len(peers))
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		admitted[id] = r.admit(service, id, peers[id], &notes)
	}
	return admitted, notes
}

func (r Rules) admit(service types.NamespacedName, id clusterset.ID, p clusterset.Peer, notes *plan.Notes) clusterset.Peer {
	trust := r.Trust.Of(id)
	if !trust.MayPublish(service.Namespace) {
		if p.Published.Service != nil {
			notes.Warn("NamespaceNotAllowed", fmt.Sprintf("%s publishes this Service, and may not publish for namespace %s: nothing of it is used; see --peer-namespaces", id, service.Namespace))
		}
		return clusterset.Peer{Health: p.Health, Synced: p.Synced, Confirmed: true, Forgotten: true}
	}
	s := p.Published.Service
	if s == nil || !p.Synced || !p.Published.Understood() {
		return p // nothing of it is read
	}
	if reason, text := refusal(service, id, p.Published); reason != "" {
		notes.Warn(reason, text)
		p.Published, p.Confirmed = clusterset.Published{}, true // as if the peer did not publish the Service
		return p
	}
	admitted := &v1alpha1.PublishedService{ObjectMeta: s.ObjectMeta, Spec: s.Spec}
	if t := s.Spec.Template; t != nil {
		if admitted.Spec.Template = template.Admit(t, r.Carry, trust.Types); admitted.Spec.Template == nil {
			notes.Warn("TypeNotAllowed", fmt.Sprintf("the Service of %s is an ExternalName, which sends clients to a name of its choice: there is no replica of it here; see --allow", id))
		}
	}
	if e := s.Spec.Exported; e != nil {
		admitted.Spec.Exported = &v1alpha1.Export{
			Created: e.Created, Labels: r.Carry.LabelsOf(e.Labels), Annotations: r.Carry.AnnotationsOf(e.Annotations),
		}
	}
	p.Published.Service = admitted
	return p
}

// refusal returns the reason why nothing of a publication is used; empty: there is
// none.
func refusal(service types.NamespacedName, id clusterset.ID, p clusterset.Published) (reason, text string) {
	spec := p.Service.Spec
	own := v1alpha1.ServiceReference{Namespace: service.Namespace, Name: service.Name}
	if spec.Cluster != string(id) || spec.Service != own {
		return "NotItsOwn", fmt.Sprintf("%s publishes as cluster %.63q, Service %s/%s: it is left aside; give each cluster an identity of its own", id, spec.Cluster, spec.Service.Namespace, spec.Service.Name)
	}
	if err := check(p); err != nil {
		return "PublicationRefused", fmt.Sprintf("what %s publishes of this Service cannot be used: %s; nothing of it is used until it can", id, err)
	}
	return "", ""
}

// Endpoints returns the endpoints of a peer's slice that are used: those whose
// addresses the peer may publish, up to the number that a slice holds.
func (r Rules) Endpoints(id clusterset.ID, p *v1alpha1.PublishedSlice, notes *plan.Notes) []endpointslice.Endpoint {
	trust := r.Trust.Of(id)
	all := slices.DeleteFunc(endpointslice.Ungrouped(p), func(e endpointslice.Endpoint) bool {
		if (p.Spec.AddressType == discoveryv1.AddressTypeIPv6) == strings.Contains(e.Address, ":") && trust.MayReach(e.Address, r.Reserved) {
			return false
		}
		notes.WarnOnce("AddressNotAllowed", string(id), fmt.Sprintf("%s publishes the address %.60q, which it may not: the endpoint is left out; see --peer-ranges, and --pod-ranges for this cluster's own", id, e.Address))
		return true
	})
	return Bounded(id, p, all, notes)
}

// Bounded returns as many of a slice's endpoints as a slice holds.
func Bounded(id clusterset.ID, p *v1alpha1.PublishedSlice, all []endpointslice.Endpoint, notes *plan.Notes) []endpointslice.Endpoint {
	if len(all) > endpointslice.Most {
		notes.Warn("TooManyEndpoints", fmt.Sprintf("%s publishes %d endpoints in the slice %s: only the first %d are used", id, len(all), p.Name, endpointslice.Most))
		return all[:endpointslice.Most]
	}
	return all
}

// check returns why a publication is not used: no version of this program publishes
// such a field, or an API server would refuse it.
func check(p clusterset.Published) error {
	spec := p.Service.Spec
	switch {
	case len(spec.Slices)+len(p.Slices) > mostSlices:
		return fmt.Errorf("it has %d slices, and %d is the most", len(spec.Slices)+len(p.Slices), mostSlices)
	case len(spec.Seen) > mostSeen || spec.Handover != nil && len(spec.Handover.Heirs) > mostSeen:
		return fmt.Errorf("it names more than %d clusters", mostSeen)
	case spec.Role != v1alpha1.RoleNone && !slices.Contains([]v1alpha1.Role{v1alpha1.RoleSource, v1alpha1.RoleCandidate, v1alpha1.RoleReceiver, v1alpha1.RoleUnion, v1alpha1.RoleSingular}, spec.Role):
		return fmt.Errorf("its role is %.40q", spec.Role)
	}
	for _, s := range p.All() {
		if len(content.IsDNS1123Subdomain(s.Name)) > 0 {
			return fmt.Errorf("a slice has the name %.80q", s.Name)
		}
		if err := checkSlice(s.Spec.PublishedEndpoints); err != nil {
			return fmt.Errorf("slice %s: %w", s.Name, err)
		}
	}
	if spec.Template == nil {
		return nil
	}
	return template.Check(spec.Template)
}

func checkSlice(s v1alpha1.PublishedEndpoints) error {
	if s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6 && s.AddressType != discoveryv1.AddressTypeFQDN {
		return fmt.Errorf("the type of its addresses is %.40q", s.AddressType)
	}
	if len(s.Ports) > template.MostPorts {
		return fmt.Errorf("it has %d ports, and %d is the most", len(s.Ports), template.MostPorts)
	}
	names := make(map[string]bool)
	for _, p := range s.Ports {
		name := ptr.Deref(p.Name, "")
		if names[name] {
			return fmt.Errorf("two ports have the name %.80q", name)
		}
		names[name] = true
		if err := template.CheckPort(name, ptr.Deref(p.Protocol, ""), ptr.Deref(p.AppProtocol, ""), p.Port); err != nil {
			return err
		}
	}
	for _, e := range s.Endpoints {
		if e.Hostname != "" && len(content.IsDNS1123Label(e.Hostname)) > 0 {
			return fmt.Errorf("an endpoint has the hostname %.80q", e.Hostname)
		}
		if len(content.IsLabelValue(e.Zone)) > 0 {
			return fmt.Errorf("an endpoint has the zone %.80q", e.Zone)
		}
	}
	return nil
}
