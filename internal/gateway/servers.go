package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/servers"
)

// policyView implements servers.Registry, through which the policies see the registry.
type policyView struct{ registry *registry }

// For implements servers.Registry.
func (v policyView) For(group string) (servers.Server, bool) {
	t := v.registry.table.Load()
	e := t.servers[t.owned.Holder[group]]
	if e == nil {
		return servers.Server{}, false
	}
	return seenByPolicies(e), true
}

// seenByPolicies is a server as the policies see it.
func seenByPolicies(e *entry) servers.Server {
	return servers.Server{Name: e.server.Name, Guard: e.server.Spec.Guard}
}

// Claims implements servers.Registry.
func (v policyView) Claims(server, group string) bool {
	return v.registry.table.Load().owned.MayHold(server, group)
}

// Kind implements servers.Registry. If the server's discovery lacks the resource, Kind has
// the server asked again, because the resource may be new.
func (v policyView) Kind(name string, resource schema.GroupVersionResource) (canonical.Kind, error) {
	e := v.registry.table.Load().servers[name]
	if e == nil || e.member.known().document == nil {
		return canonical.Kind{}, apierrors.NewServiceUnavailable(fmt.Sprintf("server %q is guarded, and the gateway does not know yet what it serves: try again", name))
	}
	kind, ok := e.member.known().document.Kind(resource)
	if !ok {
		v.registry.askAgain()
		missing := apierrors.NewNotFound(resource.GroupResource(), "")
		missing.ErrStatus.Message = fmt.Sprintf("server %q is guarded, and does not show %s in its discovery: if it serves it now, try again in a second",
			name, resource.GroupResource())
		return canonical.Kind{}, missing
	}
	return kind, nil
}

// Names implements servers.Registry.
func (v policyView) Names() []string {
	return slices.Sorted(maps.Keys(v.registry.table.Load().servers))
}

// Client implements servers.Registry.
func (v policyView) Client(name string) (*rest.Config, *http.Client, error) {
	e := v.registry.table.Load().servers[name]
	if e == nil {
		return nil, nil, fmt.Errorf("no server %q is registered", name)
	}
	conn := e.member.conn.Load()
	if conn == nil {
		return nil, nil, fmt.Errorf("server %q cannot be reached: %w", name, errors.Join(e.member.known().invalid))
	}
	config := conn.client(name)
	return config, &http.Client{Transport: config.Transport}, nil
}

// client is the configuration with which Kubernetes' clients reach the server as the
// gateway. Its host is only a name for messages: the transport knows the endpoints.
func (c *connection) client(name string) *rest.Config {
	return &rest.Config{Host: "http://" + name, Transport: c.backend.Own(), QPS: -1}
}
