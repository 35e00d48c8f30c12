package mcs

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// exporter returns a cluster whose export is so many seconds old.
func exporter(id clusterset.ID, created int64, ports ...corev1.ServicePort) clusterset.Member {
	return clusterset.Member{ID: id, PublishedServiceSpec: v1alpha1.PublishedServiceSpec{
		Role:     v1alpha1.RoleSource,
		Exported: &v1alpha1.Export{Created: metav1.NewTime(time.Unix(created, 0))},
		Template: &v1alpha1.ServiceTemplate{Type: corev1.ServiceTypeClusterIP, Ports: ports},
	}}
}

func port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolTCP}
}

// carry returns the input after the writes were carried out.
func carry(in Input, writes []plan.Write) Input {
	for _, w := range writes {
		switch o := w.Object.(type) {
		case *mcsv1beta1.ServiceImport:
			in.Here.Import = o
		case *corev1.Service:
			in.Here.Derived = o
		case *discoveryv1.EndpointSlice:
			in.Here.DerivedSlices = append(in.Here.DerivedSlices, o)
		}
	}
	return in
}

// TestDecide brings an import about in a few passes, and removes it when no cluster
// exports the Service any more.
func TestDecide(t *testing.T) {
	b := exporter("b", 1, port("http", 80))
	slice := &v1alpha1.PublishedSlice{Spec: v1alpha1.PublishedSliceSpec{PublishedEndpoints: v1alpha1.PublishedEndpoints{
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []v1alpha1.EndpointGroup{{Addresses: []string{"10.1.0.1"}, Ready: true}},
	}}}
	slice.Name = "web-0"
	in := Input{
		Now: time.Unix(9, 0), Service: types.NamespacedName{Namespace: "shop", Name: "web"},
		Here:   Here{Member: clusterset.Member{ID: "a"}, Namespace: true},
		Others: []clusterset.Member{b},
		Peers: map[clusterset.ID]clusterset.Peer{"b": {Health: clusterset.Live, Synced: true, Confirmed: true, Published: clusterset.Published{
			Service: &v1alpha1.PublishedService{Spec: b.PublishedServiceSpec}, Slices: []*v1alpha1.PublishedSlice{slice},
		}}},
	}
	for pass := 1; ; pass++ {
		writes, _ := Decide(in)
		if in = carry(in, writes); len(writes) == 0 {
			break
		}
		if pass == 5 {
			t.Fatalf("does not end: %+v", writes)
		}
	}
	if i := in.Here.Import; i == nil || len(i.Spec.Ports) != 1 || len(i.Status.Clusters) != 1 || !IsDerived(in.Here.Derived) || len(in.Here.DerivedSlices) != 1 {
		t.Fatalf("%+v", in.Here)
	}
	in.Others, in.Peers = nil, map[clusterset.ID]clusterset.Peer{"b": {Health: clusterset.Live, Synced: true}}
	if writes, _ := Decide(in); len(writes) > 0 {
		t.Errorf("it is not known yet that b exports nothing: %+v", writes)
	}
	in.Peers["b"] = clusterset.Peer{Health: clusterset.Live, Synced: true, Confirmed: true}
	if writes, _ := Decide(in); len(writes) != 3 || writes[2].Object != plan.Object(in.Here.Import) {
		t.Errorf("%+v", writes)
	}
}

// TestConflicts compares exports with the oldest, and unites their ports.
func TestConflicts(t *testing.T) {
	old, young := exporter("b", 1, port("http", 80)), exporter("a", 2, port("http", 81), port("tls", 443))
	young.Template.Headless = true
	young.Exported.Labels = map[string]string{"x": "y"}
	all := exporters(Input{Here: Here{Member: young}, Others: []clusterset.Member{old}})
	if all[0].ID != "b" {
		t.Errorf("%s comes first, whose export is younger", all[0].ID)
	}
	want := []string{"PortConflict", "TypeConflict", "LabelsConflict"}
	if diff := cmp.Diff(want, conflicts(all)); diff != "" {
		t.Error(diff)
	}
	ports := unionOfPorts(all)
	if len(ports) != 2 || ports[0].Port != 80 || ports[1].Port != 443 {
		t.Errorf("%+v", ports)
	}
}
