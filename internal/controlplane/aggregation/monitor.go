package aggregation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorclientset "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiservices "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/status/remote"

	"github.com/xbernetes/xbernetes/internal/pki"
)

// period is how often the servers behind APIServices are asked for their discovery.
const period = 15 * time.Second

// A Monitor sets the condition Available of APIServices that have a service. Upstream's
// controller does so from Services and EndpointSlices, which do not exist here.
type Monitor struct {
	services apiservices.APIServiceInterface
	metadata metadata.Interface // of custom resource definitions
	proxy    pki.Pair           // the client certificate that the aggregator shows
	log      *slog.Logger
}

// NewMonitor makes a monitor that reaches the API server through config, and asks
// the servers behind APIServices with the aggregator's client certificate.
func NewMonitor(config *rest.Config, proxy pki.Pair, log *slog.Logger) (*Monitor, error) {
	client, err := aggregatorclientset.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of APIServices: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of metadata: %w", err)
	}
	return &Monitor{services: client.ApiregistrationV1().APIServices(), metadata: objects, proxy: proxy, log: log}, nil
}

// Run sets the conditions until ctx ends. Of the servers on one store only one may run it:
// servers that do not reach the same networks would contradict each other.
func (m *Monitor) Run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		// ResourceVersion 0 reads the API server's cache: the list is read often, and may be a
		// moment old.
		all, err := m.services.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			m.log.Debug("cannot list APIServices", "error", err)
			return
		}
		for _, s := range all.Items {
			if s.Spec.Service != nil {
				asking.Go(func() { m.report(ctx, &s) })
			}
		}
	}, period)
}

// report writes the condition of an APIService if it has changed.
func (m *Monitor) report(ctx context.Context, s *apiregistrationv1.APIService) {
	now := s.DeepCopy()
	helper.SetAPIServiceCondition(now, m.availability(ctx, s))
	if ctx.Err() != nil || equality.Semantic.DeepEqual(s.Status, now.Status) {
		return
	}
	if _, err := m.services.UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		m.log.Warn("cannot say whether an APIService is available", "name", s.Name, "error", err)
	}
}

// availability asks the server behind an APIService for its discovery.
func (m *Monitor) availability(ctx context.Context, s *apiregistrationv1.APIService) apiregistrationv1.APIServiceCondition {
	c := apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, LastTransitionTime: metav1.Now(),
	}
	address, err := addressOf(s)
	switch {
	case errors.Is(err, errNoAddress):
		c.Reason, c.Message = "NoAddress", err.Error()
		return c
	case err != nil:
		c.Reason, c.Message = "InvalidAddress", err.Error()
		return c
	}
	if err := m.ask(ctx, s, address); err != nil {
		c.Reason, c.Message = "FailedDiscoveryCheck", err.Error()
		return c
	}
	c.Status, c.Reason, c.Message = apiregistrationv1.ConditionTrue, "Passed", "all checks passed"
	return c
}

// ask asks for the discovery as the aggregator does, with its certificate, and
// looks only at the status of the answer.
func (m *Monitor) ask(ctx context.Context, s *apiregistrationv1.APIService, address *url.URL) error {
	rt, err := transport.New(remote.BuildTransportConfig(nil, m.proxy.CertPEM, m.proxy.KeyPEM, s))
	if err != nil {
		return fmt.Errorf("make a connection to %s: %w", address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	where := address.JoinPath("apis", s.Spec.Group, s.Spec.Version).String()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return err
	}
	transport.SetAuthProxyHeaders(req, "system:kube-aggregator", "", []string{"system:masters"}, nil)
	resp, err := rt.RoundTrip(req) // follows no redirect
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err // without the local port, which differs each time
	}
	if err != nil {
		return fmt.Errorf("no answer from %s: %w; is the server there, can the server that runs the controllers reach it, and does spec.caBundle fit it?", where, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", where, resp.Status)
	}
	return nil
}

// Namespaced lists the namespaced kinds, for controllers that must know all of
// them before they delete a namespace. Groups of an APIService without an address
// are left out, because nobody can have stored anything in them.
func (m *Monitor) Namespaced(client discovery.DiscoveryInterface) func() ([]*metav1.APIResourceList, error) {
	return func() ([]*metav1.APIResourceList, error) {
		lists, err := client.ServerPreferredNamespacedResources()
		var failed *discovery.ErrGroupDiscoveryFailed
		if !errors.As(err, &failed) {
			return lists, err
		}
		left := map[schema.GroupVersion]error{}
		for gv, cause := range failed.Groups {
			refused, why := m.refused(gv)
			if refused {
				continue
			}
			if why != "" {
				cause = fmt.Errorf("%w: %s", cause, why)
			}
			left[gv] = cause
		}
		if len(left) == 0 {
			return lists, nil
		}
		return lists, &discovery.ErrGroupDiscoveryFailed{Groups: left}
	}
}

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// refused reports whether gv is a group of an APIService without an address, and
// not of a custom resource definition, whose objects would be stored here. If it is
// not refused, why says why the APIService is not available.
func (m *Monitor) refused(gv schema.GroupVersion) (refused bool, why string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := m.services.Get(ctx, gv.Version+"."+gv.Group, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil || s.Spec.Service == nil {
		return false, ""
	}
	if _, err := addressOf(s); err != nil {
		defined, err := m.defined(ctx, gv.Group)
		return err == nil && !defined, ""
	}
	if c := helper.GetAPIServiceConditionByType(s, apiregistrationv1.Available); c != nil && c.Status != apiregistrationv1.ConditionTrue {
		why = fmt.Sprintf("APIService %s is not available (%s): %s", s.Name, c.Reason, c.Message)
	}
	return false, why
}

// defined reports whether a custom resource definition is of the group.
func (m *Monitor) defined(ctx context.Context, group string) (bool, error) {
	crds, err := m.metadata.Resource(crdResource).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return false, fmt.Errorf("list custom resource definitions: %w", err)
	}
	for _, crd := range crds.Items {
		if _, of, _ := strings.Cut(crd.Name, "."); of == group { // names are KIND.GROUP
			return true, nil
		}
	}
	return false, nil
}
