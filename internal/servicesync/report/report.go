// Package report tells people how Services stand in several clusters, from what their
// APIs hold. It never writes, and does not need the controller to run.
package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/endpointslice"
)

// Report is the state of clusters and their shared Services, as their APIs have it.
type Report struct {
	Clusters []Cluster `json:"clusters"`
	Services []Service `json:"services"`
}

// Cluster is the state of one cluster.
type Cluster struct {
	Cluster string `json:"cluster"`
	// Renewed is the cluster's last sign of life, by its own clock; nil: none.
	Renewed  *time.Time            `json:"renewed,omitempty"`
	Complete bool                  `json:"complete"`
	Services int32                 `json:"services"`
	Peers    []v1alpha1.PeerStatus `json:"peers,omitempty"`
	// Faults say what is wrong with the cluster, for people.
	Faults []string `json:"faults,omitempty"`
}

// Service is the state of a Service in one cluster.
type Service struct {
	Service string         `json:"service"`
	Cluster string         `json:"cluster"`
	Role    v1alpha1.Role  `json:"role"`
	Mode    v1alpha1.Mode  `json:"mode,omitempty"`
	Phase   v1alpha1.Phase `json:"phase,omitempty"`
	// Ready counts the ready endpoints in use there, by the cluster that they come from.
	Ready map[string]int `json:"ready"`
	// Stale lists clusters that are silent: their endpoints are in use as last heard of.
	Stale []string `json:"stale,omitempty"`
	// Notes say which conflicts there are, and what a migration waits for.
	Notes []string `json:"notes,omitempty"`
}

// Inspect reports on the Services named, or on all if none is named, in the given
// clusters and in those that publish to the store; a nil store is none.
func Inspect(ctx context.Context, clusters []access.Cluster, store *rest.Config, namespace string, services []types.NamespacedName) (*Report, error) {
	report := &Report{Clusters: []Cluster{}, Services: []Service{}}
	wanted := func(k types.NamespacedName) bool { return len(services) == 0 || slices.Contains(services, k) }
	found := make(map[[2]string]*Service)
	for _, c := range clusters {
		a, err := access.New(c.Config, access.Pace{QPS: -1}, access.FieldManager)
		if err != nil {
			return nil, err
		}
		if store == nil {
			if err := report.readPublications(ctx, a, namespace, wanted, found); err != nil {
				return nil, fmt.Errorf("read what %s publishes: %w", c.Name, err)
			}
		}
		if err := readOwn(ctx, a, c.Name, wanted, found); err != nil {
			return nil, fmt.Errorf("read cluster %s: %w", c.Name, err)
		}
	}
	if store != nil {
		a, err := access.New(store, access.Pace{QPS: -1}, access.FieldManager)
		if err != nil {
			return nil, err
		}
		if err := report.readPublications(ctx, a, "", wanted, found); err != nil {
			return nil, fmt.Errorf("read the store: %w", err)
		}
	}
	for _, s := range found {
		report.Services = append(report.Services, *s)
	}
	slices.SortFunc(report.Clusters, func(a, b Cluster) int { return strings.Compare(a.Cluster, b.Cluster) })
	slices.SortFunc(report.Services, func(a, b Service) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Cluster, b.Cluster))
	})
	return report, nil
}

// readPublications reads leases and PublishedServices in a namespace; in all namespaces,
// as for a store, if namespace is "".
func (r *Report) readPublications(ctx context.Context, a *access.API, namespace string, wanted func(types.NamespacedName) bool, found map[[2]string]*Service) error {
	err := access.List(ctx, a, &v1alpha1.ClusterLease{}, namespace, func() *v1alpha1.ClusterLeaseList { return &v1alpha1.ClusterLeaseList{} }, func(page *v1alpha1.ClusterLeaseList) {
		for _, l := range page.Items {
			c := Cluster{Cluster: l.Name, Complete: l.Spec.Complete, Services: l.Spec.Services, Peers: l.Status.Peers}
			if !l.Spec.RenewTime.IsZero() {
				c.Renewed = &l.Spec.RenewTime.Time
			}
			for _, cond := range l.Status.Conditions {
				if cond.Status == metav1.ConditionFalse {
					c.Faults = append(c.Faults, cond.Message)
				}
			}
			r.Clusters = append(r.Clusters, c)
		}
	})
	if apierrors.IsNotFound(err) {
		return errors.New("nothing is published there: xb servicesync does not run for it")
	}
	if err != nil {
		return err
	}
	return access.List(ctx, a, &v1alpha1.PublishedService{}, namespace, func() *v1alpha1.PublishedServiceList { return &v1alpha1.PublishedServiceList{} }, func(page *v1alpha1.PublishedServiceList) {
		for _, p := range page.Items {
			if k := access.ServiceOf(p.Spec.Service); wanted(k) && p.Spec.Role != v1alpha1.RoleNone {
				s := at(found, k, p.Spec.Cluster)
				s.publication(&p)
			}
		}
	})
}

// publication fills in the report from a PublishedService.
func (s *Service) publication(p *v1alpha1.PublishedService) {
	s.Role, s.Mode = p.Spec.Role, p.Spec.Mode
	if h := p.Spec.Handover; h != nil && h.Phase != v1alpha1.PhaseDone && h.Phase != v1alpha1.PhaseWithdrawn {
		s.Phase = h.Phase
	}
	if p.Spec.Ready > 0 && s.Ready[s.Cluster] == 0 {
		s.Ready[s.Cluster] = int(p.Spec.Ready)
	}
	for _, c := range p.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			s.Notes = append(s.Notes, c.Message)
		}
	}
}

// at returns the report of a Service in a cluster, and creates it if needed.
func at(found map[[2]string]*Service, k types.NamespacedName, cluster string) *Service {
	id := [2]string{k.String(), cluster}
	if found[id] == nil {
		found[id] = &Service{Service: k.String(), Cluster: cluster, Ready: map[string]int{}}
	}
	return found[id]
}

// readOwn reads a cluster's replicas, and which endpoints of shared Services are in use.
func readOwn(ctx context.Context, a *access.API, cluster string, wanted func(types.NamespacedName) bool, found map[[2]string]*Service) error {
	err := access.List(ctx, a, &corev1.Service{}, "", func() *corev1.ServiceList { return &corev1.ServiceList{} }, func(page *corev1.ServiceList) {
		for _, svc := range page.Items {
			if k := access.KeyOf(&svc); svc.Labels[v1alpha1.LabelReplica] != "" && wanted(k) {
				s := at(found, k, cluster)
				if s.Role == "" {
					s.Role = v1alpha1.RoleReceiver
				}
			}
		}
	})
	if err != nil {
		return err
	}
	counts := make(map[types.NamespacedName]map[string]int)
	stale := make(map[types.NamespacedName]map[string]bool)
	err = access.List(ctx, a, &discoveryv1.EndpointSlice{}, "", func() *discoveryv1.EndpointSliceList { return &discoveryv1.EndpointSliceList{} }, func(page *discoveryv1.EndpointSliceList) {
		for _, e := range page.Items {
			k := access.Labelled(&e, discoveryv1.LabelServiceName)
			if found[[2]string{k.String(), cluster}] == nil {
				continue
			}
			if counts[k] == nil {
				counts[k], stale[k] = make(map[string]int), make(map[string]bool)
			}
			parts := endpointslice.Parts(&e)
			if parts == nil {
				parts = []endpointslice.Part{{Cluster: clusterset.ID(cluster), Endpoints: e.Endpoints}}
			}
			for _, p := range parts {
				from := cmp.Or(string(p.Cluster), "?") // the slice no longer says which cluster
				counts[k][from] += readyAmong(p.Endpoints)
				if p.Stale != "" {
					stale[k][from] = true
				}
			}
		}
	})
	for k, ready := range counts {
		s := at(found, k, cluster)
		s.Ready, s.Stale = ready, slices.Sorted(maps.Keys(stale[k]))
	}
	return err
}

func readyAmong(endpoints []discoveryv1.Endpoint) int {
	n := 0
	for _, ep := range endpoints {
		if ep.Conditions.Ready == nil || *ep.Conditions.Ready {
			n++
		}
	}
	return n
}

// WhoIs returns the name of the cluster behind an API, from the only lease in namespace.
func WhoIs(ctx context.Context, config *rest.Config, namespace string) (string, error) {
	a, err := access.New(config, access.Pace{QPS: -1}, access.FieldManager)
	if err != nil {
		return "", err
	}
	var names []string
	err = access.List(ctx, a, &v1alpha1.ClusterLease{}, namespace, func() *v1alpha1.ClusterLeaseList { return &v1alpha1.ClusterLeaseList{} }, func(page *v1alpha1.ClusterLeaseList) {
		for _, l := range page.Items {
			names = append(names, l.Name)
		}
	})
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("the cluster at %s does not run xb servicesync, or publishes to a store; say which cluster it is with --cluster", config.Host)
	case err != nil:
		return "", errors.New(access.Explain(err, "the cluster at "+config.Host))
	case len(names) != 1:
		return "", fmt.Errorf("the cluster at %s does not say its name in namespace %s; say it with --cluster, or name another --namespace", config.Host, namespace)
	}
	return names[0], nil
}
