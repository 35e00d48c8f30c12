package facade

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// reach describes a region to the backend that forwards to it: as a server that is shown
// the caller's own credentials, and none of the facade's.
func reach(region *rest.Config) (v1alpha1.RemoteAPIServerSpec, error) {
	spec := v1alpha1.RemoteAPIServerSpec{Identity: v1alpha1.Identity{Mode: v1alpha1.PassThrough}}
	switch {
	case region.Insecure:
		return spec, errors.New("its kubeconfig has insecure-skip-tls-verify, and anybody on the way could take the tokens of callers: give its certificate-authority instead")
	case region.Proxy != nil:
		return spec, errors.New("its kubeconfig has a proxy-url, which the facade does not support")
	}
	base, _, err := rest.DefaultServerUrlFor(region)
	if err != nil {
		return spec, fmt.Errorf("read its address: %w", err)
	}
	region = rest.CopyConfig(region)
	if err := rest.LoadTLSFiles(region); err != nil {
		return spec, fmt.Errorf("read its certificate-authority: %w", err)
	}
	spec.URL, spec.CABundle, spec.ServerName = base.String(), region.CAData, region.ServerName
	return spec, nil
}
