package admission

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

// peer returns what cluster b publishes of the Service.
func peer(change func(*v1alpha1.PublishedServiceSpec)) clusterset.Peer {
	s := &v1alpha1.PublishedService{Spec: v1alpha1.PublishedServiceSpec{
		FormatVersion: 1, Cluster: "b", Role: v1alpha1.RoleSource,
		Service:  v1alpha1.ServiceReference{Namespace: web.Namespace, Name: web.Name},
		Template: &v1alpha1.ServiceTemplate{Type: corev1.ServiceTypeClusterIP},
	}}
	if change != nil {
		change(&s.Spec)
	}
	return clusterset.Peer{Health: clusterset.Live, Synced: true, Published: clusterset.Published{Service: s}}
}

// TestAdmit names the event for each publication that is refused.
func TestAdmit(t *testing.T) {
	only := clusterset.Trusts{"b": {Namespaces: []string{"blog"}}}
	for name, test := range map[string]struct {
		trust clusterset.Trusts
		peer  clusterset.Peer
		want  string
	}{
		"admitted":          {nil, peer(nil), ""},
		"another namespace": {only, peer(nil), "NamespaceNotAllowed"},
		"another cluster":   {nil, peer(func(s *v1alpha1.PublishedServiceSpec) { s.Cluster = "c" }), "NotItsOwn"},
		"another Service":   {nil, peer(func(s *v1alpha1.PublishedServiceSpec) { s.Service.Name = "db" }), "NotItsOwn"},
		"an unknown role":   {nil, peer(func(s *v1alpha1.PublishedServiceSpec) { s.Role = "king" }), "PublicationRefused"},
		"an ExternalName":   {nil, peer(func(s *v1alpha1.PublishedServiceSpec) { s.Template.Type = corev1.ServiceTypeExternalName }), "TypeNotAllowed"},
	} {
		admitted, notes := Rules{Trust: test.trust}.Admit(web, map[clusterset.ID]clusterset.Peer{"b": test.peer})
		got := ""
		if events := notes.Events(); len(events) > 0 {
			got = events[0].Reason
		}
		used := admitted["b"].Published.Service != nil && admitted["b"].Published.Service.Spec.Template != nil
		if got != test.want || used != (test.want == "") {
			t.Errorf("%s: used %v, event %q, want %q", name, used, got, test.want)
		}
	}
}

// TestEndpoints leaves out addresses that the peer may not publish, and says so once.
func TestEndpoints(t *testing.T) {
	s := &v1alpha1.PublishedSlice{}
	s.Spec.AddressType = discoveryv1.AddressTypeIPv4
	s.Spec.Endpoints = []v1alpha1.EndpointGroup{{Addresses: []string{"10.1.0.1", "10.0.0.1", "127.0.0.1", "fd00::1", "no address"}}}
	rules := Rules{Reserved: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}
	var notes plan.Notes
	if got := rules.Endpoints("b", s, &notes); len(got) != 1 || got[0].Address != "10.1.0.1" || len(notes.Events()) != 1 {
		t.Errorf("%+v, %+v", got, notes.Events())
	}
	rules.Trust = clusterset.Trusts{"b": {Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}}
	if got := rules.Endpoints("b", s, &notes); len(got) != 1 || got[0].Address != "10.0.0.1" {
		t.Errorf("its ranges replace what is reserved: %+v", got)
	}
}
