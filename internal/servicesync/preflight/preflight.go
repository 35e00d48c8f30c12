// Package preflight checks a cluster before work for it begins, and creates the types
// and namespaces that the work needs. It never touches a Service or a publication.
package preflight

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
)

// Cluster is a cluster that work is about to begin for.
type Cluster struct {
	Own          *access.API
	Publications *access.API // equals Own unless the cluster publishes to a shared store
	Namespace    string      // of the publications
	Shared       bool        // the publications are in a store that other clusters publish to as well
	// CreateNamespaces and Endpoints say that the controller is configured to write
	// these kinds, and so needs the rights to.
	CreateNamespaces, Endpoints bool
	Log                         *slog.Logger
}

// Services returns access.ErrNoServices if the API serves no Services to share.
func (c *Cluster) Services(ctx context.Context) error {
	_, err := c.Own.Kube.CoreV1().Services(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("list Services of %s: %w", c.Own.Config.Host, access.ErrNoServices)
	}
	return nil // any other fault is reported when the Services are read
}

// needs returns all the rights that the work needs. deploy/servicesync grants them.
func (c *Cluster) needs() []access.Right {
	read := []string{"get", "list", "watch"}
	write := append(slices.Clone(read), "create", "update", "patch", "delete")
	var all []access.Right
	own := func(group, resource string, verbs ...string) {
		all = append(all, access.Right{API: c.Own, Group: group, Resource: resource, Verbs: verbs})
	}
	pub := func(resource string, verbs ...string) {
		all = append(all, access.Right{API: c.Publications, Group: v1alpha1.GroupName, Resource: resource, Scope: c.Namespace, Verbs: verbs})
	}
	own("", "services", write...)
	own("", "namespaces", read...)
	own("", "endpoints", read...)
	own("discovery.k8s.io", "endpointslices", write...)
	own("", "events", "create", "patch")
	pub("publishedservices", write...)
	pub("publishedservices/status", "update", "patch")
	pub("publishedslices", write...)
	pub("clusterleases", "get", "list", "watch", "create", "update")
	pub("clusterleases/status", "update")
	own(mcs.GroupName, "serviceexports", read...)
	own(mcs.GroupName, "serviceexports/status", "update", "patch")
	own(mcs.GroupName, "serviceimports", write...)
	own(mcs.GroupName, "serviceimports/status", "update", "patch")
	if c.Shared {
		all = append(all, access.Right{API: c.Publications, Resource: "namespaces", Verbs: read})
	}
	if c.CreateNamespaces {
		own("", "namespaces", "create")
	}
	if c.Endpoints {
		own("", "endpoints", "create", "update", "patch", "delete")
	}
	return all
}

// ConditionRights is the condition of a ClusterLease that says whether the controller
// may do all that it needs to.
const ConditionRights = "RightsGranted"

// Rights asks what the controller may do. It returns the condition to report, and
// how many rights are missing. A missing right is no error: the Services that do not
// need it are still worked on.
func (c *Cluster) Rights(ctx context.Context) (metav1.Condition, int, error) {
	all := c.needs()
	denied := make([]string, len(all))
	g, asking := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, r := range all {
		g.Go(func() (err error) {
			denied[i], err = r.Denied(asking)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return metav1.Condition{}, 0, err
	}
	var missing []string
	for i, what := range denied {
		if what != "" {
			missing = append(missing, what)
			c.Log.Warn("a right is missing; what needs it fails until it is granted (deploy/servicesync has the roles)", "right", what, "server", all[i].API.Config.Host)
		}
	}
	condition := metav1.Condition{Type: ConditionRights, Status: metav1.ConditionTrue, Reason: "Granted", Message: "all rights are granted"}
	if len(missing) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, "Missing"
		condition.Message = "may not " + strings.Join(missing, "; ") + "; deploy/servicesync has the roles"
	}
	return condition, len(missing), nil
}

// established is how long a new type may take to be served.
const established = 30 * time.Second

// Types creates or updates the CustomResourceDefinitions of publications, if this
// controller is allowed to.
func (c *Cluster) Types(ctx context.Context) error {
	client, err := apiextensions.NewForConfig(c.Publications.Config)
	if err != nil {
		return fmt.Errorf("make client of %s: %w", c.Publications.Config.Host, err)
	}
	for _, doc := range v1alpha1.CRDs() {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(doc, crd); err != nil {
			return fmt.Errorf("read own definition: %w", err)
		}
		err := ensureType(ctx, client, crd)
		if apierrors.IsForbidden(err) {
			c.Log.Warn("a definition may not be created or changed here; if it is missing or old, apply deploy/servicesync/crds.yaml", "definition", crd.Name, "error", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("create definition %s in %s: %w", crd.Name, c.Publications.Config.Host, err)
		}
	}
	return nil
}

func ensureType(ctx context.Context, client apiextensions.CustomResourceDefinitionsGetter, crd *apiextensionsv1.CustomResourceDefinition) error {
	crds := client.CustomResourceDefinitions()
	found, err := crds.Get(ctx, crd.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if found, err = crds.Create(ctx, crd, metav1.CreateOptions{FieldManager: access.FieldManager}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	case err != nil:
		return err
	case !covers(found, crd):
		found.Spec.Versions = crd.Spec.Versions
		metav1.SetMetaDataAnnotation(&found.ObjectMeta, v1alpha1.AnnotationFormat, crd.Annotations[v1alpha1.AnnotationFormat])
		if found, err = crds.Update(ctx, found, metav1.UpdateOptions{FieldManager: access.FieldManager}); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, established)
	defer cancel()
	for {
		for _, c := range found.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		access.Pause(ctx, 50*time.Millisecond)
		if found, err = crds.Get(ctx, crd.Name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
}

// covers reports whether the definition found needs no update: it has our versions
// with our schemas, or it is of a newer xb, whose definitions are never downgraded.
func covers(found, ours *apiextensionsv1.CustomResourceDefinition) bool {
	if formatOf(found) > formatOf(ours) {
		return true
	}
	known := make(map[string]apiextensionsv1.CustomResourceDefinitionVersion)
	for _, v := range found.Spec.Versions {
		known[v.Name] = v
	}
	for _, v := range ours.Spec.Versions {
		f, ok := known[v.Name]
		if !ok || !equality.Semantic.DeepEqual(f.Schema, v.Schema) {
			return false
		}
	}
	return true
}

// formatOf returns the format of publications that a definition's annotation states;
// 0 if it states none.
func formatOf(crd *apiextensionsv1.CustomResourceDefinition) int {
	format, err := strconv.Atoi(crd.Annotations[v1alpha1.AnnotationFormat])
	if err != nil {
		return 0
	}
	return format
}

// StoreNamespace creates the namespace of a shared store that the cluster publishes in.
func (c *Cluster) StoreNamespace(ctx context.Context) error {
	// The label has other clusters read the namespace: see package store.
	return c.createNamespace(ctx, c.Publications, c.Namespace, map[string]string{v1alpha1.LabelCluster: c.Namespace})
}

// OwnNamespace creates a namespace of the controller's in the own cluster.
func (c *Cluster) OwnNamespace(ctx context.Context, name string) error {
	return c.createNamespace(ctx, c.Own, name, nil)
}

// createNamespace creates a namespace unless it exists. An existing one is left as it
// is, because its labels are its administrators' to set.
func (c *Cluster) createNamespace(ctx context.Context, a *access.API, name string, labels map[string]string) error {
	found, err := a.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		for k, v := range labels {
			if found.Labels[k] != v {
				c.Log.Warn("a namespace lacks the label that has other clusters read it; have an administrator of the store set it", "namespace", name, "label", k+"="+v, "server", a.Config.Host)
			}
		}
		return nil
	}
	if apierrors.IsForbidden(err) {
		return nil // if it is missing, the first write in it fails and says so
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get namespace %s of %s: %w", name, a.Config.Host, err)
	}
	_, err = a.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{FieldManager: access.FieldManager})
	if apierrors.IsForbidden(err) {
		c.Log.Warn("a namespace is missing and may not be created here; have somebody create it", "namespace", name, "server", a.Config.Host)
		return nil
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s in %s, or have somebody create it: %w", name, a.Config.Host, err)
	}
	return nil
}
