package template

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

var carry = Carry{Labels: []string{"team"}, Annotations: []string{"example.com/*"}}

// full returns a Service with a value in each field that is published; the fields that
// only an ExternalName Service has are in external.
func full() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
			Labels: map[string]string{"team": "shop", "app": "web"}, Annotations: map[string]string{"example.com/owner": "jo"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "web"},
			Ports:                         []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("http"), Port: 80, TargetPort: intstr.FromInt32(8080)}},
			SessionAffinity:               corev1.ServiceAffinityClientIP,
			SessionAffinityConfig:         &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](60)}},
			IPFamilies:                    []corev1.IPFamily{corev1.IPv6Protocol},
			InternalTrafficPolicy:         ptr.To(corev1.ServiceInternalTrafficPolicyLocal),
			ExternalTrafficPolicy:         corev1.ServiceExternalTrafficPolicyLocal,
			TrafficDistribution:           ptr.To(corev1.ServiceTrafficDistributionPreferSameZone),
			PublishNotReadyAddresses:      true,
			LoadBalancerClass:             ptr.To("example.com/lb"),
			AllocateLoadBalancerNodePorts: ptr.To(false),
			LoadBalancerSourceRanges:      []string{"10.0.0.0/8"},
		},
	}
}

func external() *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}}
	s.Name = "web"
	return s
}

var everything = []corev1.ServiceType{corev1.ServiceTypeExternalName, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}

// TestEveryFieldHasARow fails if a field of ServiceTemplate is not read from Services,
// or does not come in from peers that may publish every type.
func TestEveryFieldHasARow(t *testing.T) {
	full, named := Of(full(), carry), Of(external(), carry)
	for _, own := range []*Template{full, named} {
		if err := Check(own); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(own, Admit(own, carry, everything)); diff != "" {
			t.Error(diff)
		}
	}
	for i := range reflect.TypeFor[Template]().NumField() {
		if reflect.ValueOf(*full).Field(i).IsZero() && reflect.ValueOf(*named).Field(i).IsZero() {
			t.Errorf("%s is not published, or this test lacks it", reflect.TypeFor[Template]().Field(i).Name)
		}
	}
}

// TestApply gives a replica every field but the selector and those that only a new
// replica can get, and takes back what an earlier template gave.
func TestApply(t *testing.T) {
	replica := &corev1.Service{}
	Apply(Of(full(), carry), replica)
	want := full()
	want.Name, want.CreationTimestamp = "", metav1.Time{}
	want.Labels = map[string]string{"team": "shop"}
	want.Annotations[v1alpha1.AnnotationCarried] = "team;example.com/owner"
	want.Spec.Selector, want.Spec.ClusterIP, want.Spec.IPFamilies = nil, "", nil
	if diff := cmp.Diff(want, replica); diff != "" {
		t.Error(diff)
	}
	replica.Labels["here"] = "stays"
	replica.Spec.Ports[0].NodePort = 30080
	changed := full()
	changed.Labels, changed.Annotations, changed.Spec.Ports[0].Port = nil, nil, 81
	Apply(Of(changed, carry), replica)
	if diff := cmp.Diff(map[string]string{"here": "stays"}, replica.Labels); diff != "" || len(replica.Annotations) > 0 {
		t.Errorf("labels %s, annotations %v", diff, replica.Annotations)
	}
	if p := replica.Spec.Ports[0]; p.Port != 81 || p.NodePort != 30080 {
		t.Errorf("%+v: the node port was given here", p)
	}
}

// TestAdmit lets in only what the peer's type allows.
func TestAdmit(t *testing.T) {
	plain := Admit(Of(full(), carry), Carry{}, nil)
	if plain.Type != corev1.ServiceTypeClusterIP || plain.ExternalTrafficPolicy != "" || plain.LoadBalancerClass != nil || plain.Labels != nil {
		t.Errorf("%+v", plain)
	}
	if got := Admit(Of(external(), carry), carry, []corev1.ServiceType{corev1.ServiceTypeLoadBalancer}); got != nil {
		t.Errorf("an ExternalName that is not allowed: %+v", got)
	}
	node := full()
	node.Spec.Type = corev1.ServiceTypeNodePort
	if got := Admit(Of(node, carry), carry, everything); got.LoadBalancerClass != nil || got.ExternalTrafficPolicy == "" {
		t.Errorf("a NodePort Service: %+v", got)
	}
	unknown := full()
	unknown.Spec.TrafficDistribution = ptr.To("NextYear")
	if got := Admit(Of(unknown, carry), carry, everything); got.TrafficDistribution != nil {
		t.Errorf("a value that is not known: %q", *got.TrafficDistribution)
	}
}

// TestCheck refuses what an API server would refuse.
func TestCheck(t *testing.T) {
	for name, spoil := range map[string]func(*Template){
		"port":           func(t *Template) { t.Ports[0].Port = 0 },
		"port's name":    func(t *Template) { t.Ports[0].Name = "No" },
		"two ports":      func(t *Template) { t.Ports = append(t.Ports, t.Ports[0]) },
		"target":         func(t *Template) { t.Ports[0].TargetPort = intstr.FromInt32(-1) },
		"selector":       func(t *Template) { t.Selector["no key"] = "" },
		"label":          func(t *Template) { t.Labels["team"] = "no value" },
		"annotations":    func(t *Template) { t.Annotations["example.com/x"] = string(make([]byte, mostKeys)) },
		"families":       func(t *Template) { t.IPFamilies[0] = "IPv5" },
		"affinity":       func(t *Template) { t.SessionAffinity = "Sometimes" },
		"config":         func(t *Template) { t.SessionAffinityConfig.ClientIP.TimeoutSeconds = nil },
		"traffic policy": func(t *Template) { *t.InternalTrafficPolicy = "Nowhere" },
	} {
		bad := Of(full(), carry)
		if spoil(bad); Check(bad) == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

// TestErrorIsTheSame: a template with several faults is refused with the same words each
// time, so that an event that tells of it is not repeated.
func TestErrorIsTheSame(t *testing.T) {
	long := strings.Repeat("x", mostKeys)
	for name, bad := range map[string]*Template{
		"labels and annotations that are too long": {Labels: map[string]string{"a": long}, Annotations: map[string]string{"a": long}},
		"several labels with values that are none": {Labels: map[string]string{"a": "/1", "b": "/2", "c": "/3", "d": "/4"}},
	} {
		first := checkKeys(bad)
		for range 100 {
			if err := checkKeys(bad); err == nil || err.Error() != first.Error() {
				t.Errorf("%s: %v, and then %v", name, first, err)
				break
			}
		}
	}
}
