// Package aggregation finds the API servers that APIServices stand for, and reports
// whether they answer. It never forwards a request.
package aggregation

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
)

// AddressAnnotation of an APIService is the address of its service's server: https://HOST or
// https://HOST:PORT. There are no Services here that would give it. As in any cluster, the
// server's certificate is checked against spec.caBundle, for the service's name
// NAME.NAMESPACE.svc.
const AddressAnnotation = "apiservice.xbernetes.io/url"

// errNoAddress says that an APIService has a service, but not the annotation.
var errNoAddress = fmt.Errorf("there are no Services here to find its server by; say where it is by the annotation %s: https://HOST:PORT", AddressAnnotation)

// addressOf returns the address of the server of an APIService that has a service.
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

// A Resolver finds the servers that the aggregator forwards to.
type Resolver struct {
	lister atomic.Pointer[listers.APIServiceLister] // nil until Bind
}

// Bind gives the resolver the APIServices. They come from the aggregator, which itself needs a
// resolver to be made, so they can only be set afterwards.
func (a *Resolver) Bind(lister listers.APIServiceLister) { a.lister.Store(&lister) }

// ResolveEndpoint returns the address of a service's server. All APIServices that have the
// service must name the same address.
func (a *Resolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	lister := a.lister.Load()
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
			continue // the condition Available says why
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
