// Package template says which fields of a Service are published, how each is read
// from the Service, what is taken of what a peer publishes, and how a replica gets
// it. It never decides whether a Service is published or replicated.
package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
)

// Template is the published fields of a Service.
type Template = v1alpha1.ServiceTemplate

// row is how one field of a Service, or two that belong together, is published.
type row struct {
	scope scope
	// read copies the field from a Service of this cluster.
	read func(from *corev1.Service, c Carry, to *Template)
	// admit copies as much of a peer's field as is used here.
	admit func(from *Template, c Carry, to *Template)
	// check says why an API server would refuse a peer's field; nil: it refuses nothing.
	check func(*Template) error
	// apply makes a replica's field that of the template; nil: the field has no part
	// in replicas that exist.
	apply func(from *Template, to *corev1.Service)
}

// scope is which types of Services have a field.
type scope int

const (
	everyType scope = iota
	named           // ExternalName
	exposed         // every type but ExternalName that a peer's replicas may have only if it is allowed
	balanced        // LoadBalancer
)

// rows is the table of the published fields. A new field of a Service is a field of
// v1alpha1.ServiceTemplate and a row here. The order is that of the checks.
var rows = []row{
	{
		read:  func(from *corev1.Service, _ Carry, to *Template) { to.Created = from.CreationTimestamp },
		admit: func(from *Template, _ Carry, to *Template) { to.Created = from.Created },
	},
	{read: readPorts, admit: admitPorts, check: checkPorts, apply: applyPorts},
	{
		// A replica adopts the selector only when it is to give endpoints.
		read:  func(from *corev1.Service, _ Carry, to *Template) { to.Selector = Selector(from) },
		admit: func(from *Template, _ Carry, to *Template) { to.Selector = from.Selector },
		check: checkSelector,
	},
	{read: readKeys, admit: admitKeys, check: checkKeys, apply: applyKeys},
	{
		// Only a new replica can become headless.
		read: func(from *corev1.Service, _ Carry, to *Template) {
			to.Headless = from.Spec.ClusterIP == corev1.ClusterIPNone
		},
		admit: func(from *Template, _ Carry, to *Template) { to.Headless = from.Headless },
	},
	{
		// Only a new replica can choose its families; see ChooseFamilies.
		read:  func(from *corev1.Service, _ Carry, to *Template) { to.IPFamilies = slices.Clone(from.Spec.IPFamilies) },
		admit: func(from *Template, _ Carry, to *Template) { to.IPFamilies = from.IPFamilies },
		check: checkFamilies,
	},
	field(everyType, func(t *Template) *corev1.ServiceAffinity { return &t.SessionAffinity },
		func(s *corev1.ServiceSpec) *corev1.ServiceAffinity { return &s.SessionAffinity }, itself, checkAffinity),
	field(everyType, func(t *Template) **corev1.ServiceInternalTrafficPolicy { return &t.InternalTrafficPolicy },
		func(s *corev1.ServiceSpec) **corev1.ServiceInternalTrafficPolicy { return &s.InternalTrafficPolicy }, clone, checkInternalPolicy),
	field(everyType, func(t *Template) **corev1.SessionAffinityConfig { return &t.SessionAffinityConfig },
		func(s *corev1.ServiceSpec) **corev1.SessionAffinityConfig { return &s.SessionAffinityConfig }, (*corev1.SessionAffinityConfig).DeepCopy, checkAffinityConfig),
	{
		read: func(from *corev1.Service, _ Carry, to *Template) {
			to.TrafficDistribution = clone(from.Spec.TrafficDistribution)
		},
		admit: func(from *Template, _ Carry, to *Template) {
			to.TrafficDistribution = knownDistribution(from.TrafficDistribution)
		},
		apply: func(from *Template, to *corev1.Service) {
			to.Spec.TrafficDistribution = clone(from.TrafficDistribution)
		},
	},
	field(everyType, func(t *Template) *bool { return &t.PublishNotReadyAddresses },
		func(s *corev1.ServiceSpec) *bool { return &s.PublishNotReadyAddresses }, itself, nil),
	field(named, func(t *Template) *string { return &t.ExternalName },
		func(s *corev1.ServiceSpec) *string { return &s.ExternalName }, itself, nil),
	field(exposed, func(t *Template) *corev1.ServiceExternalTrafficPolicy { return &t.ExternalTrafficPolicy },
		func(s *corev1.ServiceSpec) *corev1.ServiceExternalTrafficPolicy { return &s.ExternalTrafficPolicy }, itself, nil),
	field(balanced, func(t *Template) **string { return &t.LoadBalancerClass },
		func(s *corev1.ServiceSpec) **string { return &s.LoadBalancerClass }, clone, nil),
	field(balanced, func(t *Template) **bool { return &t.AllocateLoadBalancerNodePorts },
		func(s *corev1.ServiceSpec) **bool { return &s.AllocateLoadBalancerNodePorts }, clone, nil),
	field(balanced, func(t *Template) *[]string { return &t.LoadBalancerSourceRanges },
		func(s *corev1.ServiceSpec) *[]string { return &s.LoadBalancerSourceRanges }, slices.Clone, nil),
}

// field is the row of a field that has the same type in Services and templates. check
// is nil if nothing need be checked.
func field[T any](of scope, in func(*Template) *T, on func(*corev1.ServiceSpec) *T, copyOf func(T) T, check func(*Template) error) row {
	return row{
		scope: of,
		read:  func(from *corev1.Service, _ Carry, to *Template) { *in(to) = copyOf(*on(&from.Spec)) },
		admit: func(from *Template, _ Carry, to *Template) { *in(to) = *in(from) },
		check: check,
		apply: func(from *Template, to *corev1.Service) { *on(&to.Spec) = copyOf(*in(from)) },
	}
}

// Of returns the published fields of a Service.
func Of(s *corev1.Service, c Carry) *Template {
	t := &Template{Type: s.Spec.Type}
	if t.Type == "" {
		t.Type = corev1.ServiceTypeClusterIP
	}
	plain := s.Annotations[v1alpha1.AnnotationImportType] == string(corev1.ServiceTypeClusterIP) && t.Type != corev1.ServiceTypeExternalName
	if plain {
		t.Type = corev1.ServiceTypeClusterIP
	}
	for _, r := range rows {
		if !plain || r.scope != exposed && r.scope != balanced {
			r.read(s, c, t)
		}
	}
	return t
}

// Admit returns as much of a peer's template as is used here, if replicas may have the
// given types beside ClusterIP. It returns nil for an ExternalName Service, which
// sends clients to a name of the peer's choice, unless that type is allowed. A field
// that has no row does not come in.
func Admit(t *Template, c Carry, types []corev1.ServiceType) *Template {
	out := &Template{Type: corev1.ServiceTypeClusterIP}
	allowed := slices.Contains(types, t.Type)
	if allowed {
		out.Type = t.Type
	} else if t.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	for _, r := range rows {
		if r.scope == everyType || allowed && r.scope.has(t.Type) {
			r.admit(t, c, out)
		}
	}
	return out
}

// has reports whether Services of a type have the fields.
func (s scope) has(kind corev1.ServiceType) bool {
	switch s {
	case named:
		return kind == corev1.ServiceTypeExternalName
	case exposed:
		return kind != corev1.ServiceTypeExternalName
	case balanced:
		return kind == corev1.ServiceTypeLoadBalancer
	default:
		return true
	}
}

// Check returns why a peer's template is not used: no version of this program
// publishes such a field, or an API server would refuse it.
func Check(t *Template) error {
	for _, r := range rows {
		if r.check == nil {
			continue
		}
		if err := r.check(t); err != nil {
			return err
		}
	}
	return nil
}

// Apply gives a replica the fields of the Service that it follows. Whatever other
// programs have added to the replica stays.
func Apply(t *Template, replica *corev1.Service) {
	replica.Spec.Type = t.Type
	for _, r := range rows {
		if r.apply != nil {
			r.apply(t, replica)
		}
	}
}

// ChooseFamilies asks for the IP families of the template for a new Service. It leaves
// out families that this cluster lacks; has is empty if those that it has are unknown.
// It returns the only family of the template if the cluster lacks that.
func ChooseFamilies(t *Template, has []corev1.IPFamily, s *corev1.Service) (lacking corev1.IPFamily) {
	if len(t.IPFamilies) > 1 {
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
	}
	for _, f := range t.IPFamilies {
		if slices.Contains(has, f) {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, f)
		} else if len(has) > 0 && len(t.IPFamilies) == 1 {
			lacking = f
		}
	}
	return lacking
}

// FamilyNotSupported explains that this cluster lacks the only IP family of a
// Service of another cluster.
func FamilyNotSupported(of clusterset.ID, lacking corev1.IPFamily) string {
	return fmt.Sprintf("the Service of %s is %s, which Services of this cluster cannot be", of, lacking)
}

// Shape is how clients reach a Service, which no update can change.
type Shape string

// The shapes.
const (
	byName     Shape = "name"
	byEndpoint Shape = "headless"
	byAddress  Shape = "address"
)

// ShapeOf returns the shape of a Service.
func ShapeOf(kind corev1.ServiceType, headless bool) Shape {
	switch {
	case kind == corev1.ServiceTypeExternalName:
		return byName
	case headless:
		return byEndpoint
	default:
		return byAddress
	}
}

// Selector returns the selector that a Service has, or else the one that was taken
// away from it and kept in an annotation.
func Selector(s *corev1.Service) map[string]string {
	if len(s.Spec.Selector) > 0 {
		return maps.Clone(s.Spec.Selector)
	}
	var saved map[string]string
	if json.Unmarshal([]byte(s.Annotations[v1alpha1.AnnotationSelector]), &saved) != nil {
		return nil
	}
	return saved
}

func checkSelector(t *Template) error {
	for k, v := range t.Selector {
		if len(content.IsLabelKey(k)) > 0 || len(content.IsLabelValue(v)) > 0 {
			return fmt.Errorf("its selector has %.80q", k)
		}
	}
	return nil
}

func checkFamilies(t *Template) error {
	families := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	if len(t.IPFamilies) > 2 || slices.ContainsFunc(t.IPFamilies, func(f corev1.IPFamily) bool { return !slices.Contains(families, f) }) {
		return fmt.Errorf("its IP families are %.80q", t.IPFamilies)
	}
	return nil
}

func checkAffinity(t *Template) error {
	if t.SessionAffinity != "" && t.SessionAffinity != corev1.ServiceAffinityNone && t.SessionAffinity != corev1.ServiceAffinityClientIP {
		return fmt.Errorf("its session affinity is %.40q", t.SessionAffinity)
	}
	return nil
}

func checkAffinityConfig(t *Template) error {
	if c := t.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		const day = 86400
		if s := ptr.Deref(c.ClientIP.TimeoutSeconds, 0); t.SessionAffinity != corev1.ServiceAffinityClientIP || s < 1 || s > day {
			return errors.New("its session affinity cannot be configured so")
		}
	}
	return nil
}

func checkInternalPolicy(t *Template) error {
	if p := t.InternalTrafficPolicy; p != nil && *p != corev1.ServiceInternalTrafficPolicyCluster && *p != corev1.ServiceInternalTrafficPolicyLocal {
		return fmt.Errorf("its internal traffic policy is %.40q", *p)
	}
	return nil
}

// knownDistribution leaves out a value that an API server here may not know.
func knownDistribution(d *string) *string {
	if d == nil || !slices.Contains([]string{corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode}, *d) {
		return nil
	}
	return d
}

func itself[T any](v T) T { return v }

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return ptr.To(*p)
}
