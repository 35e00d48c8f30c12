package model_test

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// word reports whether somebody has said something of the Service in its cluster.
func word(s *corev1.Service) bool {
	return s.Annotations[v1alpha1.AnnotationMode]+s.Annotations[v1alpha1.AnnotationRole]+s.Annotations[v1alpha1.AnnotationAnswered] != ""
}

// mayHold checks what an honest cluster writes while a peer is hostile.
func (c *cluster) mayHold(old, o model.Object) {
	if len(c.w.honest()) == len(c.w.clusters) {
		return
	}
	switch o := o.(type) {
	case *corev1.Service:
		was, _ := old.(*corev1.Service)
		c.mayHoldService(was, o)
	case *discoveryv1.EndpointSlice:
		c.mayHoldSlice(o)
	}
}

func (c *cluster) mayHoldService(was, s *corev1.Service) {
	native := was != nil && was.Labels[v1alpha1.LabelReplica]+was.Labels[v1alpha1.LabelImport] == ""
	if native && !word(was) && mustJSON(was) != mustJSON(s) {
		c.w.fail("%s: changes its own Service without a word of its own to %s", c.id, brief(s))
	}
	if native && was.Annotations[v1alpha1.AnnotationMode] == "" && len(was.Spec.Selector) > 0 && len(s.Spec.Selector) == 0 {
		c.w.fail("%s: takes the selector from its own Service, which has no annotation", c.id)
	}
	if len(s.Spec.Selector) > 0 && mustJSON(s.Spec.Selector) != `{"app":"cart"}` {
		c.w.fail("%s: adopts the selector %v", c.id, s.Spec.Selector)
	}
	if !native && len(s.Spec.Selector) > 0 && (was == nil || len(was.Spec.Selector) == 0) && s.Annotations[v1alpha1.AnnotationMode] == "" {
		c.w.fail("%s: a replica without an annotation gets a selector", c.id)
	}
	p := s.Spec
	if p.Type != corev1.ServiceTypeClusterIP || p.ExternalName+p.LoadBalancerIP != "" || len(p.ExternalIPs)+len(p.LoadBalancerSourceRanges) > 0 ||
		p.LoadBalancerClass != nil || p.HealthCheckNodePort != 0 || p.ExternalTrafficPolicy != "" || p.AllocateLoadBalancerNodePorts != nil {
		c.w.fail("%s: a Service is exposed: %s", c.id, mustJSON(p))
	}
	for _, port := range p.Ports {
		if port.NodePort != 0 {
			c.w.fail("%s: a peer chooses the node port %d", c.id, port.NodePort)
		}
	}
	for k, v := range s.Annotations {
		if strings.Contains(v, "evil") || k == v1alpha1.AnnotationModeCompat {
			c.w.fail("%s: a peer says %s: %s of a Service here", c.id, k, v)
		}
	}
	for k, v := range s.Labels {
		if v == "evil" && k != "team" {
			c.w.fail("%s: a peer labels a Service here %s", c.id, k)
		}
	}
}

func (c *cluster) mayHoldSlice(s *discoveryv1.EndpointSlice) {
	svc := c.api.service()
	native := svc != nil && svc.Labels[v1alpha1.LabelReplica] == "" && s.Labels[discoveryv1.LabelServiceName] == key.Name
	theirs := slices.ContainsFunc(endpointslice.Parts(s), func(p model.Part) bool { return c.w.of(p.Cluster).hostile && len(p.Endpoints) > 0 })
	if native && !word(svc) && (theirs || len(s.Endpoints) > 0 && !c.w.asked) {
		c.w.fail("%s: sends clients of its own Service, of which nobody said anything, to %s", c.id, brief(s))
	}
	for _, e := range s.Endpoints {
		a, err := netip.ParseAddr(e.Addresses[0])
		if err != nil || !a.IsGlobalUnicast() {
			c.w.fail("%s: uses the address %s", c.id, e.Addresses[0])
		}
	}
	if s.Labels[discoveryv1.LabelServiceName] != key.Name || svc == nil {
		return
	}
	for _, p := range endpointslice.Parts(s) {
		if c.w.of(p.Cluster).hostile && len(p.Endpoints) > 0 && svc.Labels[v1alpha1.LabelReplica] == "a" && c.id == "b" && !c.w.asked && !c.w.deleted {
			c.w.fail("%s: sends clients of a's Service to %s", c.id, brief(s))
		}
	}
}

// joined reports whether the hostile peer serves beside others because somebody here
// has asked for a union: while the others are silent, what it gives counts.
func (c *cluster) joined() bool {
	return c.w.asked && slices.ContainsFunc(c.api.slices(), func(s *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(endpointslice.Parts(s), func(p model.Part) bool { return c.w.of(p.Cluster).hostile && len(p.Endpoints) > 0 })
	})
}
