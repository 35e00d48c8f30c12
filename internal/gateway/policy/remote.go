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
	// starting says so too.
	goneAfter = 30 * time.Second
)

// remote asks the servers themselves what they hold, as the gateway. Only what
// the gateway sends to a server is looked at: the rest is that server's own.
type remote struct {
	servers Servers

	mu      sync.Mutex
	missing map[string]time.Time // server and kind: since when it is not served
}

func newRemote(s Servers) *remote { return &remote{servers: s, missing: map[string]time.Time{}} }

// gone says whether a kind that discovery does not show has not been served for
// long enough; served says what a list of it has just said.
func (r *remote) gone(server string, gr schema.GroupResource, served bool) bool {
	key, now := server+" "+gr.String(), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	since, ok := r.missing[key]
	switch {
	case served:
		delete(r.missing, key)
		return false
	case !ok:
		r.missing[key] = now
		return false
	case now.Sub(since) < goneAfter:
		return false
	}
	return true
}

// kind is a resource that a server may hold, and what is known of it.
type kind struct {
	schema.GroupVersionResource
	shown  bool // by the server's discovery
	atOnce bool // can be deleted as a collection
}

// kinds are the resources of a server that are in namespaces and can be listed
// and deleted, in their preferred versions, and those of known that discovery
// does not show.
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
	if err != nil {
		// A group that cannot be seen may hold something.
		return nil, fmt.Errorf("discover what server %s serves: %w", server, err)
	}
	return kindsOf(lists, known, func(group string) bool {
		s, ok := r.servers.For(group)
		return ok && s.Name == server
	})
}

// kindsOf picks the kinds of groups that are sent to the server.
func kindsOf(lists []*metav1.APIResourceList, known map[string]string, sent func(group string) bool) ([]kind, error) {
	var found []kind
	shown := map[string]bool{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("discovery has a version that is none: %w", err)
		}
		for _, res := range l.APIResources {
			if sent(gv.Group) && slices.Contains(res.Verbs, "list") && slices.Contains(res.Verbs, "delete") {
				k := kind{gv.WithResource(res.Name), true, slices.Contains(res.Verbs, "deletecollection")}
				found = append(found, k)
				shown[resourceName(k.GroupResource())] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if gr := groupResource(name); !shown[name] && sent(gr.Group) {
			found = append(found, kind{gr.WithVersion(known[name]), false, true})
		}
	}
	return found, nil
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
	if err != nil {
		return 0, err
	}
	for _, k := range kinds {
		if k.GroupResource() == groupResource(resource) {
			return countAll(ctx, client.Resource(k.GroupVersionResource).Namespace(namespace))
		}
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
