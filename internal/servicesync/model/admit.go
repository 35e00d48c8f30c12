package model

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// Bounds of what is taken of one Service of one peer.
const (
	mostSlices = 200 // 20,000 endpoints
	mostPorts  = 100
	mostSeen   = 1000
)

// admit leaves of every peer's publications what the peer may say. Everything
// after it decides about that alone, so what is not listed here has no way in.
//
// A publication that is not as this xb writes one is refused whole: one field that
// the API server refuses would hold up the endpoints of the other clusters, too.
func (d *decision) admit() {
	peers := make(map[ClusterID]Peer, len(d.in.Peers))
	for _, id := range sortedPeers(d.in.Peers) {
		peers[id] = d.admitPeer(id, d.in.Peers[id])
	}
	d.in.Peers = peers
}

func (d *decision) admitPeer(id ClusterID, p Peer) Peer {
	trust := d.cfg.Trust.Of(id)
	if !trust.publishes(d.in.Service.Namespace) {
		if p.Published.Service != nil {
			d.warn("NamespaceNotAllowed", fmt.Sprintf("%s publishes this Service, and may not publish for namespace %s: nothing of it is used; see --peer-namespaces", id, d.in.Service.Namespace))
		}
		return Peer{Health: p.Health, Synced: p.Synced, Confirmed: true, Forgotten: true}
	}
	s := p.Published.Service
	if s == nil || !p.Synced || !understood(s) {
		return p // nothing of it is read
	}
	refuse := func(reason, note string) Peer {
		d.warn(reason, note)
		p.Published, p.Confirmed = Published{}, true // as if it did not publish it
		return p
	}
	own := v1alpha1.ServiceReference{Namespace: d.in.Service.Namespace, Name: d.in.Service.Name}
	if s.Spec.Cluster != string(id) || s.Spec.Service != own {
		return refuse("NotItsOwn", fmt.Sprintf("%s publishes as cluster %.63q, Service %s/%s: it is left aside; give each cluster an identity of its own", id, s.Spec.Cluster, s.Spec.Service.Namespace, s.Spec.Service.Name))
	}
	if err := validate(p.Published); err != nil {
		return refuse("PublicationRefused", fmt.Sprintf("what %s publishes of this Service cannot be used: %s; nothing of it is used until it can", id, err))
	}
	admitted := &v1alpha1.PublishedService{ObjectMeta: s.ObjectMeta, Spec: s.Spec}
	admitted.Spec.Template = d.admitTemplate(id, trust, s.Spec.Template)
	if e := s.Spec.Exported; e != nil {
		admitted.Spec.Exported = &v1alpha1.Export{
			Created: e.Created, Labels: carried(d.cfg.Carry.Labels, e.Labels), Annotations: carried(d.cfg.Carry.Annotations, e.Annotations),
		}
	}
	p.Published.Service = admitted
	return p
}

// admitTemplate lists all of a Service that a peer's template can bring here.
func (d *decision) admitTemplate(id ClusterID, trust Trust, t *v1alpha1.ServiceTemplate) *v1alpha1.ServiceTemplate {
	if t == nil {
		return nil
	}
	out := &v1alpha1.ServiceTemplate{
		Created:                  t.Created,
		Labels:                   carried(d.cfg.Carry.Labels, t.Labels),
		Annotations:              carried(d.cfg.Carry.Annotations, t.Annotations),
		Type:                     corev1.ServiceTypeClusterIP,
		Headless:                 t.Headless,
		Selector:                 t.Selector, // see restoreSelector
		SessionAffinity:          t.SessionAffinity,
		SessionAffinityConfig:    t.SessionAffinityConfig,
		IPFamilies:               t.IPFamilies,
		InternalTrafficPolicy:    t.InternalTrafficPolicy,
		TrafficDistribution:      knownDistribution(t.TrafficDistribution),
		PublishNotReadyAddresses: t.PublishNotReadyAddresses,
	}
	for _, p := range t.Ports {
		out.Ports = append(out.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port, TargetPort: p.TargetPort})
	}
	allowed := slices.Contains(trust.Types, t.Type)
	switch {
	case t.Type == corev1.ServiceTypeExternalName && !allowed:
		d.warn("TypeNotAllowed", fmt.Sprintf("the Service of %s is an ExternalName, which sends clients to a name of its choice: there is no replica of it here; see --allow", id))
		return nil
	case t.Type == corev1.ServiceTypeExternalName:
		out.Type, out.ExternalName = t.Type, t.ExternalName
	case allowed:
		out.Type, out.ExternalTrafficPolicy = t.Type, t.ExternalTrafficPolicy
		if t.Type == corev1.ServiceTypeLoadBalancer {
			out.LoadBalancerClass, out.AllocateLoadBalancerNodePorts = t.LoadBalancerClass, t.AllocateLoadBalancerNodePorts
			out.LoadBalancerSourceRanges = t.LoadBalancerSourceRanges
		}
	}
	return out
}

// knownDistribution leaves out what an API server here may not know.
func knownDistribution(d *string) *string {
	if d == nil || !slices.Contains([]string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode}, *d) {
		return nil
	}
	return d
}

// carried is what of labels or annotations goes along: what is listed, but for
// what other tools or this one say about the object where it is.
func carried(list []string, all map[string]string) map[string]string {
	var out map[string]string
	for k, v := range all {
		if !listed(list, k) || bound(k) || len(content.IsLabelKey(k)) > 0 {
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[k] = v
	}
	return out
}

// validate reports what of a publication no xb writes, or an API server refuses.
func validate(p Published) error {
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
		if err := validateSlice(s.Spec.PublishedEndpoints); err != nil {
			return fmt.Errorf("slice %s: %w", s.Name, err)
		}
	}
	if spec.Template == nil {
		return nil
	}
	return validateTemplate(spec.Template)
}

func validateSlice(s v1alpha1.PublishedEndpoints) error {
	if s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6 && s.AddressType != discoveryv1.AddressTypeFQDN {
		return fmt.Errorf("the type of its addresses is %.40q", s.AddressType)
	}
	if len(s.Ports) > mostPorts {
		return fmt.Errorf("it has %d ports, and %d is the most", len(s.Ports), mostPorts)
	}
	names := make(map[string]bool)
	for _, p := range s.Ports {
		name := deref(p.Name)
		if names[name] {
			return fmt.Errorf("two ports have the name %.80q", name)
		}
		names[name] = true
		if err := validatePort(name, deref(p.Protocol), deref(p.AppProtocol), deref(p.Port), p.Port != nil); err != nil {
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

func validatePort(name string, protocol corev1.Protocol, app string, port int32, must bool) error {
	switch {
	case name != "" && len(content.IsDNS1123Label(name)) > 0:
		return fmt.Errorf("a port has the name %.80q", name)
	case protocol != "" && protocol != corev1.ProtocolTCP && protocol != corev1.ProtocolUDP && protocol != corev1.ProtocolSCTP:
		return fmt.Errorf("a port has the protocol %.40q", protocol)
	case app != "" && len(content.IsLabelKey(app)) > 0:
		return fmt.Errorf("a port has the application protocol %.80q", app)
	case must && (port < 1 || port > 65535):
		return fmt.Errorf("a port is %d", port)
	}
	return nil
}

func validateTemplate(t *v1alpha1.ServiceTemplate) error {
	if err := validateServicePorts(t.Ports); err != nil {
		return err
	}
	for k, v := range t.Selector {
		if len(content.IsLabelKey(k)) > 0 || len(content.IsLabelValue(v)) > 0 {
			return fmt.Errorf("its selector has %.80q", k)
		}
	}
	for list, all := range map[string]map[string]string{"labels": t.Labels, "annotations": t.Annotations} {
		if sizeOf(all) > mostKeys {
			return fmt.Errorf("it has %s of more than %d bytes", list, mostKeys)
		}
	}
	for _, v := range t.Labels {
		if len(content.IsLabelValue(v)) > 0 {
			return fmt.Errorf("a label has the value %.80q", v)
		}
	}
	families := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	switch {
	case len(t.IPFamilies) > 2 || slices.ContainsFunc(t.IPFamilies, func(f corev1.IPFamily) bool { return !slices.Contains(families, f) }):
		return fmt.Errorf("its IP families are %.80q", t.IPFamilies)
	case t.SessionAffinity != "" && t.SessionAffinity != corev1.ServiceAffinityNone && t.SessionAffinity != corev1.ServiceAffinityClientIP:
		return fmt.Errorf("its session affinity is %.40q", t.SessionAffinity)
	case t.InternalTrafficPolicy != nil && *t.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster && *t.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyLocal:
		return fmt.Errorf("its internal traffic policy is %.40q", *t.InternalTrafficPolicy)
	}
	if c := t.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		const day = 86400
		if s := deref(c.ClientIP.TimeoutSeconds); t.SessionAffinity != corev1.ServiceAffinityClientIP || s < 1 || s > day {
			return errors.New("its session affinity cannot be configured so")
		}
	}
	return nil
}

// mostKeys bounds labels and annotations, as API servers bound annotations.
const mostKeys = 256 << 10

func sizeOf(all map[string]string) (n int) {
	for k, v := range all {
		n += len(k) + len(v)
	}
	return n
}

func validateServicePorts(ports []corev1.ServicePort) error {
	if len(ports) > mostPorts {
		return fmt.Errorf("it has %d ports, and %d is the most", len(ports), mostPorts)
	}
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	names, numbers := make(map[string]bool), make(map[number]bool)
	for _, p := range ports {
		if err := validatePort(p.Name, p.Protocol, deref(p.AppProtocol), p.Port, true); err != nil {
			return err
		}
		n := number{p.Protocol, p.Port}
		switch {
		case names[p.Name] || numbers[n] || len(ports) > 1 && p.Name == "":
			return fmt.Errorf("port %.80q cannot be told from another", p.Name)
		case p.TargetPort.Type == intstr.Int && (p.TargetPort.IntVal < 0 || p.TargetPort.IntVal > 65535),
			p.TargetPort.Type == intstr.String && len(content.IsDNS1123Label(p.TargetPort.StrVal)) > 0:
			return fmt.Errorf("port %.80q has the target %.80q", p.Name, p.TargetPort.String())
		}
		names[p.Name], numbers[n] = true, true
	}
	return nil
}

// entitled are the clusters whose endpoints may serve the Service here: those for
// which there is a word of this cluster, and those to whom they pass it on. A
// replica's word is the label that says whom it follows; a Service that was created
// here has the annotation that names its heir, and its own handover.
func (d *decision) entitled() map[ClusterID]bool {
	all := make(map[ClusterID]bool)
	if d.svc != nil {
		all[ClusterID(d.svc.Labels[v1alpha1.LabelReplica])] = true
	}
	all[ClusterID(d.me.To)] = true
	passOn(all, d.handover)
	for _, m := range d.others {
		if m.trust.Claim {
			all[m.id] = true
		}
	}
	inUnion := d.me.Mode == v1alpha1.ModeUnion || d.me.Role == v1alpha1.RoleUnion
	for range d.others { // each pass that changes anything adds one of them
		before := len(all)
		for _, m := range d.others {
			switch {
			case all[m.id]:
				inUnion = inUnion || m.Role == v1alpha1.RoleUnion
				passOn(all, m.Handover)
			case inUnion && m.Role == v1alpha1.RoleUnion:
				all[m.id] = true
			}
		}
		if len(all) == before {
			break
		}
	}
	if !d.anyHasSay(all) {
		for _, m := range d.others {
			all[m.id] = true
		}
	}
	return all
}

// anyHasSay reports whether one of the clusters may still decide who serves.
func (d *decision) anyHasSay(clusters map[ClusterID]bool) bool {
	for id := range clusters {
		if id != "" && id != d.cfg.Cluster && d.hasSay(id) {
			return true
		}
	}
	return false
}

// hasSay reports whether a cluster may still decide who serves: it gives, or is
// about to, or has passed that on. Silence takes nothing away: that a cluster has no
// such Service any more is for itself to say, or for --forget.
func (d *decision) hasSay(id ClusterID) bool {
	p, known := d.in.Peers[id]
	s := p.Published.Service
	switch {
	case !known:
		return true
	case p.Forgotten:
		return false
	case !p.Synced, s == nil && !p.Confirmed, s != nil && !understood(s):
		return true
	case s == nil:
		return false
	}
	h := s.Spec.Handover
	return gives(s.Spec.Role) || s.Spec.Role == v1alpha1.RoleCandidate || h != nil && h.Phase != v1alpha1.PhaseWithdrawn && len(h.Heirs) > 0
}

// passOn adds the heirs of a handover that its cluster counts on.
func passOn(all map[ClusterID]bool, h *v1alpha1.Handover) {
	if h == nil || h.Phase == v1alpha1.PhasePreparing || h.Phase == v1alpha1.PhaseWithdrawn {
		return
	}
	for _, id := range h.Heirs {
		all[ClusterID(id)] = true
	}
}
