package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregatorclientset "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/status/remote"
)

// AddressAnnotation says on an APIService where the server is that its service
// stands for: https://HOST or https://HOST:PORT. There are no Services here to
// find it by. The server's certificate is checked against spec.caBundle, for the
// name NAME.NAMESPACE.svc of the service, as everywhere.
const AddressAnnotation = "apiservice.xbernetes.io/url"

// aggregationPeriod is how often the servers behind APIServices are asked whether
// they are there.
const aggregationPeriod = 15 * time.Second

// errNoAddress: an APIService names a service and no address.
var errNoAddress = fmt.Errorf("there are no Services here to find its server by; say where it is by the annotation %s: https://HOST:PORT", AddressAnnotation)

// addressOf is where the server is that an APIService with a service stands for.
func addressOf(s *apiregistrationv1.APIService) (*url.URL, error) {
	raw := s.Annotations[AddressAnnotation]
	if raw == "" {
		return nil, errNoAddress
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the annotation %s is not of the form https://HOST:PORT", AddressAnnotation)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// addresses finds the servers that the aggregator forwards to.
type addresses struct {
	// live is set once the aggregator, which needs addresses to be made, is there.
	live atomic.Pointer[listers.APIServiceLister]
}

// ResolveEndpoint is the address of those APIServices that name the service. They
// must agree.
func (a *addresses) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	lister := a.live.Load()
	if lister == nil {
		return nil, errors.New("the server starts")
	}
	all, err := (*lister).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list APIServices: %w", err)
	}
	var found *url.URL
	for _, s := range all {
		ref := s.Spec.Service
		if ref == nil || ref.Namespace != namespace || ref.Name != name || ref.Port == nil || *ref.Port != port {
			continue
		}
		u, err := addressOf(s)
		if err != nil {
			continue // it is not available, and says why
		}
		if found != nil && *found != *u {
			return nil, fmt.Errorf("APIServices give the service %s/%s several addresses", namespace, name)
		}
		found = u
	}
	if found == nil {
		return nil, fmt.Errorf("service %s/%s: %w", namespace, name, errNoAddress)
	}
	return found, nil
}

// aggregation keeps the condition Available of APIServices that have a service.
// Upstream's controller asks Services and EndpointSlices. One server does it for
// all, so that those that do not reach the same networks do not take turns at it.
func (t *term) aggregation(context.Context) (func(context.Context), error) {
	client, err := aggregatorclientset.NewForConfig(t.as("apiservice-availability"))
	if err != nil {
		return nil, err
	}
	services := client.ApiregistrationV1().APIServices()
	return func(ctx context.Context) {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			// From the API server's cache: this is asked for often, and a moment's age is no harm.
			all, err := services.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				t.log.Debug("cannot list APIServices", "error", err)
				return
			}
			for i := range all.Items {
				s := &all.Items[i]
				if s.Spec.Service == nil {
					continue
				}
				t.wg.Go(func() {
					now := s.DeepCopy()
					helper.SetAPIServiceCondition(now, t.availability(ctx, s))
					if ctx.Err() != nil || equality.Semantic.DeepEqual(s.Status, now.Status) {
						return
					}
					if _, err := services.UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
						t.log.Warn("cannot say whether an APIService is available", "name", s.Name, "error", err)
					}
				})
			}
		}, aggregationPeriod)
	}, nil
}

// availability asks the server behind an APIService for its discovery.
func (t *term) availability(ctx context.Context, s *apiregistrationv1.APIService) apiregistrationv1.APIServiceCondition {
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
	if err := t.askDiscovery(ctx, s, address); err != nil {
		c.Reason, c.Message = "FailedDiscoveryCheck", err.Error()
		return c
	}
	c.Status, c.Reason, c.Message = apiregistrationv1.ConditionTrue, "Passed", "all checks passed"
	return c
}

// askDiscovery asks as the aggregator does, and with its certificate. Of the answer
// only the status is looked at.
func (t *term) askDiscovery(ctx context.Context, s *apiregistrationv1.APIService, address *url.URL) error {
	proxy := t.id.frontProxy
	rt, err := transport.New(remote.BuildTransportConfig(nil, proxy.CertPEM, proxy.KeyPEM, s))
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

// discoverNamespaced lists the namespaced kinds, for controllers that must know all
// of them before they let a namespace go. A group of an APIService without an
// address is left out: nobody can have stored anything in it.
func (t *term) discoverNamespaced(client discovery.DiscoveryInterface) func() ([]*metav1.APIResourceList, error) {
	return func() ([]*metav1.APIResourceList, error) {
		lists, err := client.ServerPreferredNamespacedResources()
		var failed *discovery.ErrGroupDiscoveryFailed
		if !errors.As(err, &failed) {
			return lists, err
		}
		left := map[schema.GroupVersion]error{}
		for gv, cause := range failed.Groups {
			refused, why := t.refused(gv)
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

// refused tells whether gv is a group of an APIService without an address, and of
// no custom resource definition, whose objects would be stored here; if not, why the
// APIService is not available.
func (t *term) refused(gv schema.GroupVersion) (refused bool, why string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := aggregatorclientset.NewForConfig(t.as("apiservice-availability"))
	if err != nil {
		return false, ""
	}
	s, err := client.ApiregistrationV1().APIServices().Get(ctx, gv.Version+"."+gv.Group, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil || s.Spec.Service == nil {
		return false, ""
	}
	if _, err := addressOf(s); err != nil {
		defined, err := groupDefined(ctx, t.metadata, gv.Group)
		return err == nil && !defined, ""
	}
	if c := helper.GetAPIServiceConditionByType(s, apiregistrationv1.Available); c != nil && c.Status != apiregistrationv1.ConditionTrue {
		why = fmt.Sprintf("APIService %s is not available (%s): %s", s.Name, c.Reason, c.Message)
	}
	return false, why
}

// groupDefined tells whether a custom resource definition is of the group.
func groupDefined(ctx context.Context, client metadata.Interface, group string) (bool, error) {
	crds, err := client.Resource(crdResource).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
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
