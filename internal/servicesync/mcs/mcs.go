// Package mcs decides what this cluster should hold for the multi-cluster services
// API (KEP-1645): the status of its ServiceExport, and a ServiceImport with an address
// and endpoints. It never decides which role a Service has.
package mcs

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/admission"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// Input is all that a decision about one Service depends on.
type Input struct {
	Now     time.Time
	Service types.NamespacedName
	// Rules are what this cluster admits of its peers.
	Rules admission.Rules
	// Families are the IP families that Services of this cluster can have; empty:
	// unknown.
	Families []corev1.IPFamily
	Here     Here
	// Peers are all clusters that are read, as far as they are admitted.
	Peers map[clusterset.ID]clusterset.Peer
	// Others are those of Peers that publish the Service.
	Others []clusterset.Member
}

// Here is what this cluster has of the Service.
type Here struct {
	// Member is what this cluster says of the Service.
	Member clusterset.Member
	// Annotated says that the Service has or had an annotation about its role.
	Annotated bool
	// Namespace says that the namespace exists and is not being deleted.
	Namespace bool
	// Service is nil if there is none.
	Service *corev1.Service
	// Published says that the Service is published, with its export.
	Published bool
	// Slices are this cluster's own endpoints, as it is about to publish them.
	Slices map[string]v1alpha1.PublishedEndpoints
	// Export and Import are those of the Service's name; nil: none.
	Export *mcsv1beta1.ServiceExport
	Import *mcsv1beta1.ServiceImport
	// Derived is the Service of DerivedName, which gives the import its address, and
	// DerivedSlices are all EndpointSlices of it.
	Derived       *corev1.Service
	DerivedSlices []*discoveryv1.EndpointSlice
}

// DerivedName returns the name of the Service that gives a ServiceImport its address.
func DerivedName(service types.NamespacedName) string {
	return "derived-" + clusterset.Digest(service.Namespace, service.Name)
}

// IsDerived reports whether a Service was made to give a ServiceImport its address.
// Nothing is published of such a Service.
func IsDerived(s *corev1.Service) bool { return s != nil && s.Labels[v1alpha1.LabelImport] != "" }

// decision is one run of Decide.
type decision struct {
	Input
	// exporters are the clusters that export the Service, the oldest export first.
	// Where the exports differ, the first decides.
	exporters []clusterset.Member
	writes    []plan.Write
	notes     plan.Notes
}

// Decide returns the writes that the multi-cluster services API needs here. All
// clusters that export a Service share one ServiceImport. A derived Service gives it
// its address, and slices of that Service hold the endpoints of all exporters, those
// of this cluster too.
func Decide(in Input) ([]plan.Write, plan.Notes) {
	d := &decision{Input: in, exporters: exporters(in)}
	d.exportStatus()
	i := d.Here.Import
	switch {
	case !d.Here.Namespace:
	case len(d.exporters) == 0:
		d.remove()
	case i != nil && i.Labels[v1alpha1.LabelImport] == "":
		d.notes.Warn("ImportNotOurs", "the ServiceImport of this name was made by somebody else, and stays as it is; remove it to have the exported Service imported")
	default:
		d.importOf()
		if i != nil { // the derived objects have the import as their owner
			d.derived()
		}
		slices := d.slices()
		if i != nil {
			d.writeSlices(slices)
		}
	}
	return d.writes, d.notes
}

func exporters(in Input) []clusterset.Member {
	var found []clusterset.Member
	if in.Here.Member.Exported != nil {
		found = append(found, in.Here.Member)
	}
	for _, m := range in.Others {
		if m.Exported != nil && m.Template != nil {
			found = append(found, m)
		}
	}
	slices.SortStableFunc(found, func(a, b clusterset.Member) int {
		return cmp.Or(a.Exported.Created.Compare(b.Exported.Created.Time), cmp.Compare(a.ID, b.ID))
	})
	return found
}

// remove deletes the import and what was made for it, if it is known of every other
// cluster that it does not export the Service.
func (d *decision) remove() {
	const why = "no cluster exports the Service"
	for id, p := range d.Peers {
		switch {
		case p.Forgotten, p.Confirmed, p.Synced && p.Published.Service != nil:
		case p.Health == clusterset.Expired && !d.imports(id):
			// A cluster whose lease has expired, and of which nothing is imported, delays
			// nothing.
		default:
			return
		}
	}
	for _, s := range d.Here.DerivedSlices {
		if s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy {
			d.writes = append(d.writes, plan.Deleted(s, why))
		}
	}
	if IsDerived(d.Here.Derived) {
		d.writes = append(d.writes, plan.Deleted(d.Here.Derived, why))
	}
	if i := d.Here.Import; i != nil && i.Labels[v1alpha1.LabelImport] != "" {
		d.writes = append(d.writes, plan.Deleted(i, why))
	}
}

// imports reports whether the import has endpoints of a cluster.
func (d *decision) imports(id clusterset.ID) bool {
	return slices.ContainsFunc(d.Here.DerivedSlices, func(s *discoveryv1.EndpointSlice) bool {
		return s.Labels[v1alpha1.LabelCluster] == string(id) && len(s.Endpoints) > 0
	})
}

// owner makes the import the owner of an object, so that both are deleted together.
// Invariant: the import exists.
func (d *decision) owner() []metav1.OwnerReference {
	i := d.Here.Import
	return []metav1.OwnerReference{{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName, Name: i.Name, UID: i.UID}}
}

// with returns a map with the entries of a and b; of a key in both, that of b.
func with(a, b map[string]string) map[string]string {
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}
