package policy

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
	// remoteTime bounds one question to a server.
	remoteTime = 30 * time.Second
	pageSize   = 500
	// goneAfter is how long a server must say 404 to the list of a kind that it
	// has served before its objects are taken to be gone: a server that is only
	// starting says so too. Two that are further apart are two beginnings.
	goneAfter = 30 * time.Second
)

// remote asks the servers themselves what they hold, as the gateway. Only what
// the gateway sends to a server is looked at: the rest is that server's own.
type remote struct {
	servers Servers

	mu      sync.Mutex
	missing map[string]absence // by server and kind
}

// absence is the time in which a kind is not served.
type absence struct{ since, last time.Time }

func newRemote(s Servers) *remote { return &remote{servers: s, missing: map[string]absence{}} }

// gone says whether a kind that discovery does not show has not been served for
// long enough; served says what a list of it has just said.
func (r *remote) gone(server string, gr schema.GroupResource, served bool) bool {
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

// kind is a resource that a server may hold, and what is known of it.
type kind struct {
	schema.GroupVersionResource
	shown  bool // by the server's discovery
	atOnce bool // can be deleted as a collection
}

// standing is what a group is to a server.
type standing int

const (
	foreign  standing = iota // it is another's, or the server's own business
	sent                     // the gateway sends it there
	unplaced                 // the server's to have, and nobody has it
)

func (r *remote) standing(server, group string) standing {
	switch s, ok := r.servers.For(group); {
	case ok && s.Name == server:
		return sent
	case !ok && r.servers.Claims(server, group):
		return unplaced
	}
	return foreign
}

// kinds are the resources of a server that are in namespaces and can be listed
// and deleted, in their preferred versions, and those of known that discovery
// does not show. With an error they are those that could be seen.
func (r *remote) kinds(server string, known map[string]string) ([]kind, error) {
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

// kindsOf picks the kinds of groups that are sent to the server. One that is
// shown and in nobody's place may hold what was sent to the server before the
// gateway or the server started anew: that is an error, until it has a place.
// So is one of which discovery has failed: it may hold something.
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
			shown[resourceName(k.GroupResource())] = true
			switch of(gv.Group) {
			case sent:
				found = append(found, k)
			case unplaced:
				unclear = append(unclear, fmt.Errorf("%s is shown there, and the gateway does not send its group anywhere yet", k.GroupResource()))
			case foreign:
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if gr := groupResource(name); !shown[name] && of(gr.Group) != foreign {
			found = append(found, kind{gr.WithVersion(known[name]), false, true})
		}
	}
	return found, errors.Join(unclear...)
}

// client is the server's, which does not wait for an answer for ever.
func (r *remote) client(server string) (*rest.Config, *http.Client, error) {
	config, client, err := r.servers.Client(server)
	if err != nil {
		return nil, nil, err
	}
	bounded := *client
	bounded.Timeout = remoteTime
	config = rest.CopyConfig(config)
	config.QPS = -1 // a namespace is emptied as fast as the server lets it
	return config, &bounded, nil
}

func (r *remote) metadata(server string) (metadata.Interface, error) {
	config, client, err := r.client(server)
	if err != nil {
		return nil, err
	}
	return metadata.NewForConfigAndClient(config, client)
}

func (r *remote) count(ctx context.Context, server, resource, version, namespace string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, remoteTime)
	defer cancel()
	client, err := r.metadata(server)
	if err != nil {
		return 0, err
	}
	if version != "" {
		n, err := countAll(ctx, client.Resource(groupResource(resource).WithVersion(version)).Namespace(namespace))
		if !apierrors.IsNotFound(err) {
			r.gone(server, groupResource(resource), true)
			return n, err
		}
	}
	kinds, err := r.kinds(server, nil)
	for _, k := range kinds {
		if k.GroupResource() == groupResource(resource) {
			return countAll(ctx, client.Resource(k.GroupVersionResource).Namespace(namespace))
		}
	}
	if err != nil {
		return 0, err
	}
	if version != "" && r.gone(server, groupResource(resource), false) {
		return 0, nil
	}
	return 0, fmt.Errorf("server %s does not show %s as something to list and delete", server, resource)
}

func countAll(ctx context.Context, c metadata.ResourceInterface) (int64, error) {
	for {
		n, err := countPages(ctx, c)
		if apierrors.IsResourceExpired(err) {
			continue // the list took longer than the server keeps it: anew
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

// exists says whether an object is there.
func (r *remote) exists(ctx context.Context, server string, gvr schema.GroupVersionResource, namespace, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, remoteTime)
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

func (r *remote) holds(ctx context.Context, server, namespace string, known map[string]string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, remoteTime)
	defer cancel()
	kinds, err := r.kinds(server, known)
	if err != nil {
		return false, err
	}
	client, err := r.metadata(server)
	if err != nil {
		return false, err
	}
	return r.holdsAny(ctx, client, server, kinds, namespace)
}

func (r *remote) holdsAny(ctx context.Context, client metadata.Interface, server string, of []kind, namespace string) (bool, error) {
	for _, k := range of {
		page, err := client.Resource(k.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		missing := apierrors.IsNotFound(err)
		if r.gone(server, k.GroupResource(), !missing) && !k.shown {
			continue // and its objects with it
		}
		if err != nil {
			return false, fmt.Errorf("list %s in namespace %s: %w", k.GroupResource(), namespace, err)
		}
		if len(page.Items) > 0 || page.Continue != "" {
			return true, nil
		}
	}
	return false, nil
}

func (r *remote) empty(ctx context.Context, server, namespace string, known map[string]string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, remoteTime)
	defer cancel()
	kinds, err := r.kinds(server, known)
	if err != nil {
		return false, err
	}
	client, err := r.metadata(server)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, k := range kinds {
		err := emptyOne(ctx, client.Resource(k.GroupVersionResource).Namespace(namespace), k.atOnce)
		if err != nil && (k.shown || !apierrors.IsNotFound(err)) {
			errs = append(errs, fmt.Errorf("delete %s of namespace %s at server %s: %w", k.GroupResource(), namespace, server, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	holds, err := r.holdsAny(ctx, client, server, kinds, namespace)
	return err == nil && !holds, err
}

// emptyOne deletes all objects of one resource; with what depends on them, as
// Kubernetes' namespace controller does.
func emptyOne(ctx context.Context, c metadata.ResourceInterface, atOnce bool) error {
	background := metav1.DeletePropagationBackground
	how := metav1.DeleteOptions{PropagationPolicy: &background}
	page, err := c.List(ctx, metav1.ListOptions{Limit: pageSize})
	if err != nil || len(page.Items) == 0 {
		return err
	}
	if atOnce {
		err := c.DeleteCollection(ctx, how, metav1.ListOptions{})
		if !apierrors.IsMethodNotSupported(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, o := range page.Items { // one page each time: it is called until none is left
		if o.DeletionTimestamp != nil {
			continue
		}
		if err := c.Delete(ctx, o.Name, how); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
