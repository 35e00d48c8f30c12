package facade

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/backend"
)

// reach returns what forwards to a region: as to a server that is shown the caller's own
// credentials, and none of the facade's. It refuses a way on which tokens would not be safe.
func reach(name string, region *rest.Config, opts backend.Options) (*backend.Backend, error) {
	switch {
	case region.Insecure:
		return nil, errors.New("its kubeconfig has insecure-skip-tls-verify, and anybody on the way could take the tokens of callers: give its certificate-authority instead")
	case region.Proxy != nil:
		return nil, errors.New("its kubeconfig has a proxy-url, which the facade does not support")
	}
	base, _, err := rest.DefaultServerUrlFor(region)
	if err != nil {
		return nil, fmt.Errorf("read its address: %w", err)
	}
	region = rest.CopyConfig(region)
	if err := rest.LoadTLSFiles(region); err != nil {
		return nil, fmt.Errorf("read its certificate-authority: %w", err)
	}
	return backend.New(name, v1alpha1.RemoteAPIServerSpec{
		URL: base.String(), CABundle: region.CAData, ServerName: region.ServerName, Identity: v1alpha1.Identity{Mode: v1alpha1.PassThrough},
	}, nil, opts)
}
