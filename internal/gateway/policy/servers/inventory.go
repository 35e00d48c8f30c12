package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const (
	// listTimeout bounds one method of an Inventory that asks a server.
	listTimeout = 30 * time.Second
	pageSize    = 500
	// goneAfter is how long a server must answer 404 to lists of a kind, before the
	// kind's objects are taken to be gone: a server that is only starting answers
	// 404 as well. If two such answers are further apart, the time begins again.
	goneAfter = 30 * time.Second
)

// Inventory asks servers what they hold, as the gateway itself. It looks only at
// kinds whose requests the gateway sends to the server: all others are the server's
// own. It is safe for concurrent use.
type Inventory struct {
	registry Registry

	mu      sync.Mutex
	missing map[string]absence // by server and kind; guarded by mu
}

// absence is the time in which a server has answered 404 to lists of a kind.
// Invariant: since <= last.
type absence struct{ since, last time.Time }

// NewInventory makes an Inventory of the registered servers.
func NewInventory(registry Registry) *Inventory {
	return &Inventory{registry: registry, missing: map[string]absence{}}
}

// gone says whether a kind has been missing from a server for goneAfter. served
// says whether the server has just answered a list of it.
func (r *Inventory) gone(server string, gr schema.GroupResource, served bool) bool {
	key, now := server+" "+gr.String(), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if served {
		delete(r.missing, key)
		return false
	}
	a, ok := r.missing[key]
	if !ok || now.Sub(a.last) > goneAfter {
		a.since = now
	}
	a.last = now
	r.missing[key] = a
	return now.Sub(a.since) >= goneAfter
}

// kind is a resource of which a server may hold objects.
type kind struct {
	schema.GroupVersionResource
	shown      bool // the server's discovery shows it
	collective bool // its objects can be deleted as a collection
}

// standing says whose a group is, seen from one server.
type standing int

const (
	foreign standing = iota // it goes to another server, or is the server's own
	sent                    // the gateway sends its requests to the server
	vacant                  // the server may have it, and no server has it now
)

func (r *Inventory) standing(server, group string) standing {
	switch s, ok := r.registry.For(group); {
	case ok && s.Name == server:
		return sent
	case !ok && r.registry.Claims(server, group):
		return vacant
	}
	return foreign
}

// kinds returns the server's namespaced resources that can be listed and deleted,
// in their preferred versions, and those of known that discovery does not show.
// With an error it returns those that could be seen.
func (r *Inventory) kinds(server string, known map[string]string) ([]kind, error) {
	config, client, err := r.client(server)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	lists, err := d.ServerPreferredNamespacedResources()
	failed, some := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !some {
		return nil, fmt.Errorf("discover what server %s serves: %w", server, err)
	}
	found, err := kindsOf(lists, failed, known, func(group string) standing { return r.standing(server, group) })
	if err != nil {
		err = fmt.Errorf("see what server %s holds: %w", server, err)
	}
	return found, err
}

// kindsOf picks the kinds whose groups are sent to the server. It is an error if a
// kind's group is vacant: the server may hold objects that were sent to it before
// the gateway or the server restarted. It is an error too if discovery of a group
// has failed, because the server may hold objects of that group.
func kindsOf(lists []*metav1.APIResourceList, failed map[schema.GroupVersion]error, known map[string]string, of func(group string) standing) ([]kind, error) {
	var found []kind
	var unclear []error
	shown := map[string]bool{}
	for gv, err := range failed {
		if of(gv.Group) != foreign {
			unclear = append(unclear, fmt.Errorf("discover %s: %w", gv, err))
		}
	}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("discovery has a version that is none: %w", err)
		}
		for _, res := range l.APIResources {
			if !slices.Contains(res.Verbs, "list") || !slices.Contains(res.Verbs, "delete") {
				continue
			}
			k := kind{gv.WithResource(res.Name), true, slices.Contains(res.Verbs, "deletecollection")}
			shown[k.GroupResource().String()] = true
			switch of(gv.Group) {
			case sent:
				found = append(found, k)
			case vacant:
				unclear = append(unclear, fmt.Errorf("%s is shown there, and the gateway does not send its group anywhere yet", k.GroupResource()))
			case foreign:
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if gr := schema.ParseGroupResource(name); !shown[name] && of(gr.Group) != foreign {
			found = append(found, kind{gr.WithVersion(known[name]), false, true})
		}
	}
	return found, errors.Join(unclear...)
}

// client is the registry's client of the server, with a time-out.
func (r *Inventory) client(server string) (*rest.Config, *http.Client, error) {
	config, client, err := r.registry.Client(server)
	if err != nil {
		return nil, nil, err
	}
	bounded := *client
	bounded.Timeout = listTimeout
	config = rest.CopyConfig(config)
	config.QPS = -1 // a namespace is emptied as fast as the server lets it
	return config, &bounded, nil
}

func (r *Inventory) metadata(server string) (metadata.Interface, error) {
	config, client, err := r.client(server)
	if err != nil {
		return nil, err
	}
	return metadata.NewForConfigAndClient(config, client)
}

// Count implements quota.Inventory. It returns 0 once the kind is gone from the server.
func (r *Inventory) Count(ctx context.Context, server, resource, version, namespace string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	client, err := r.metadata(server)
	if err != nil {
		return 0, err
	}
	if version != "" {
		n, err := countAll(ctx, client.Resource(schema.ParseGroupResource(resource).WithVersion(version)).Namespace(namespace))
		if !apierrors.IsNotFound(err) {
			r.gone(server, schema.ParseGroupResource(resource), true)
			return n, err
		}
	}
	kinds, err := r.kinds(server, nil)
	for _, k := range kinds {
		if k.GroupResource() == schema.ParseGroupResource(resource) {
			return countAll(ctx, client.Resource(k.GroupVersionResource).Namespace(namespace))
		}
	}
	if err != nil {
		return 0, err
	}
	if version != "" && r.gone(server, schema.ParseGroupResource(resource), false) {
		return 0, nil
	}
	return 0, fmt.Errorf("server %s does not show %s as something to list and delete", server, resource)
}

func countAll(ctx context.Context, c metadata.ResourceInterface) (int64, error) {
	for {
		n, err := countPages(ctx, c)
		if apierrors.IsResourceExpired(err) {
			continue // listing took longer than the server keeps a list: begin again
		}
		return n, err
	}
}

func countPages(ctx context.Context, c metadata.ResourceInterface) (int64, error) {
	var n int64
	for next := ""; ; {
		page, err := c.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if err != nil {
			return 0, err
		}
		n += int64(len(page.Items))
		if next = page.Continue; next == "" {
			return n, nil
		}
	}
}

// Exists says whether an object is there.
func (r *Inventory) Exists(ctx context.Context, server string, gvr schema.GroupVersionResource, namespace, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	client, err := r.metadata(server)
	if err != nil {
		return false, err
	}
	_, err = client.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// holding is what a server may hold in one namespace, and the way to it.
type holding struct {
	inventory         *Inventory
	server, namespace string
	kinds             []kind
	client            metadata.Interface
}

// holding finds out what kinds of objects the server may hold in a namespace.
func (r *Inventory) holding(server, namespace string, known map[string]string) (*holding, error) {
	kinds, err := r.kinds(server, known)
	if err != nil {
		return nil, err
	}
	client, err := r.metadata(server)
	return &holding{r, server, namespace, kinds, client}, err
}

func (h *holding) of(k kind) metadata.ResourceInterface {
	return h.client.Resource(k.GroupVersionResource).Namespace(h.namespace)
}

// Holds implements namespaces.Inventory.
func (r *Inventory) Holds(ctx context.Context, server, namespace string, known map[string]string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	h, err := r.holding(server, namespace, known)
	if err != nil {
		return false, err
	}
	return h.any(ctx)
}

// any says whether the server holds an object of any of the kinds.
func (h *holding) any(ctx context.Context) (bool, error) {
	for _, k := range h.kinds {
		page, err := h.of(k).List(ctx, metav1.ListOptions{Limit: 1})
		missing := apierrors.IsNotFound(err)
		if h.inventory.gone(h.server, k.GroupResource(), !missing) && !k.shown {
			continue // its objects are gone with it
		}
		if err != nil {
			return false, fmt.Errorf("list %s in namespace %s: %w", k.GroupResource(), h.namespace, err)
		}
		if len(page.Items) > 0 || page.Continue != "" {
			return true, nil
		}
	}
	return false, nil
}

// Empty implements namespaces.Inventory.
func (r *Inventory) Empty(ctx context.Context, server, namespace string, known map[string]string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	h, err := r.holding(server, namespace, known)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, k := range h.kinds {
		err := emptyOne(ctx, h.of(k), k.collective)
		if err != nil && (k.shown || !apierrors.IsNotFound(err)) {
			errs = append(errs, fmt.Errorf("delete %s of namespace %s at server %s: %w", k.GroupResource(), namespace, server, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	holds, err := h.any(ctx)
	return err == nil && !holds, err
}

// emptyOne deletes objects of one resource, and in the background what depends on
// them, as Kubernetes' namespace controller does. If they cannot be deleted as a
// collection it deletes one page of them: it is called again until none is left.
func emptyOne(ctx context.Context, c metadata.ResourceInterface, collective bool) error {
	background := metav1.DeletePropagationBackground
	how := metav1.DeleteOptions{PropagationPolicy: &background}
	page, err := c.List(ctx, metav1.ListOptions{Limit: pageSize})
	if err != nil || len(page.Items) == 0 {
		return err
	}
	if collective {
		err := c.DeleteCollection(ctx, how, metav1.ListOptions{})
		if !apierrors.IsMethodNotSupported(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, o := range page.Items {
		if o.DeletionTimestamp != nil {
			continue
		}
		if err := c.Delete(ctx, o.Name, how); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
