package servicesync

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

// errNoServices says that an API is not a cluster's: it may be a store's.
var errNoServices = errors.New("no Services are served")

// checkServices reports errNoServices of an API that has none to share.
func (t *term) checkServices(ctx context.Context) error {
	_, err := t.own.kube.CoreV1().Services(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("list Services of %s: %w", t.own.config.Host, errNoServices)
	}
	return nil // what else is wrong is said by who reads them
}

// right is something that the controller must be allowed to do.
type right struct {
	api                    *api
	group, resource, scope string // scope is a namespace; "" is all
	verbs                  []string
}

// needs are all the rights that the work needs. deploy/servicesync grants them.
func (t *term) needs() []right {
	read := []string{"get", "list", "watch"}
	write := append(slices.Clone(read), "create", "update", "patch", "delete")
	own, pub := t.own, t.publications
	all := []right{
		{own, "", "services", "", write},
		{own, "", "namespaces", "", read},
		{own, "", "endpoints", "", read},
		{own, "discovery.k8s.io", "endpointslices", "", write},
		{own, "", "events", "", []string{"create", "patch"}},
		{pub, v1alpha1.GroupName, "publishedservices", t.namespace, write},
		{pub, v1alpha1.GroupName, "publishedservices/status", t.namespace, []string{"update", "patch"}},
		{pub, v1alpha1.GroupName, "publishedslices", t.namespace, write},
		{pub, v1alpha1.GroupName, "clusterleases", t.namespace, []string{"get", "list", "watch", "create", "update"}},
		{pub, v1alpha1.GroupName, "clusterleases/status", t.namespace, []string{"update"}},
		{own, mcs.GroupName, "serviceexports", "", read},
		{own, mcs.GroupName, "serviceexports/status", "", []string{"update", "patch"}},
		{own, mcs.GroupName, "serviceimports", "", write},
		{own, mcs.GroupName, "serviceimports/status", "", []string{"update", "patch"}},
	}
	if t.cfg.Store != nil {
		all = append(all, right{pub, "", "namespaces", "", read})
	}
	if t.cfg.CreateNamespaces {
		all = append(all, right{own, "", "namespaces", "", []string{"create"}})
	}
	if t.cfg.Endpoints {
		all = append(all, right{own, "", "endpoints", "", []string{"create", "update", "patch", "delete"}})
	}
	return all
}

// checkRights asks what the controller may do, and names what it may not. It
// goes on without: other Services need other rights.
func (t *term) checkRights(ctx context.Context) (metav1.Condition, error) {
	all := t.needs()
	denied := make([]string, len(all))
	g, asking := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, r := range all {
		g.Go(func() (err error) {
			denied[i], err = r.denied(asking)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return metav1.Condition{}, err
	}
	var missing []string
	for i, what := range denied {
		if what != "" {
			missing = append(missing, what)
			t.log.Warn("a right is missing; what needs it fails until it is granted (deploy/servicesync has the roles)", "right", what, "server", all[i].api.config.Host)
		}
	}
	t.metrics.rights.WithLabelValues(t.cluster.Name).Set(float64(len(missing)))
	c := metav1.Condition{Type: ConditionRights, Status: metav1.ConditionTrue, Reason: "Granted", Message: "all rights are granted"}
	if len(missing) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "Missing", "may not "+strings.Join(missing, "; ")+"; deploy/servicesync has the roles"
	}
	return c, nil
}

// denied is what of a right the API denies; "" is nothing.
func (r right) denied(ctx context.Context) (string, error) {
	var denied []string
	for _, verb := range append([]string{"*"}, r.verbs...) {
		resource, sub, _ := strings.Cut(r.resource, "/")
		review, err := r.api.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: r.group, Resource: resource, Subresource: sub, Namespace: r.scope,
			}},
		}, metav1.CreateOptions{})
		switch {
		case err != nil:
			return "", fmt.Errorf("ask %s what this controller may do: %w", r.api.config.Host, err)
		case verb == "*" && review.Status.Allowed:
			return "", nil
		case verb != "*" && !review.Status.Allowed:
			denied = append(denied, verb)
		}
	}
	if len(denied) == 0 {
		return "", nil
	}
	what := strings.Join(denied, ", ") + " " + r.resource
	if r.group != "" {
		what += "." + r.group
	}
	if r.scope != "" {
		what += " in namespace " + r.scope
	}
	return what, nil
}

// established is how long a new type may take to be served.
const established = 30 * time.Second

// ensureTypes creates or brings up to date the CustomResourceDefinitions of what
// is published, where that is allowed.
func (t *term) ensureTypes(ctx context.Context) error {
	client, err := apiextensions.NewForConfig(t.publications.config)
	if err != nil {
		return fmt.Errorf("make client of %s: %w", t.publications.config.Host, err)
	}
	for _, doc := range v1alpha1.CRDs() {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(doc, crd); err != nil {
			return fmt.Errorf("read own definition: %w", err)
		}
		err := ensureType(ctx, client, crd)
		if apierrors.IsForbidden(err) {
			t.log.Warn("a definition may not be created or changed here; if it is missing or old, apply deploy/servicesync/crds.yaml", "definition", crd.Name, "error", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("create definition %s in %s: %w", crd.Name, t.publications.config.Host, err)
		}
	}
	return nil
}

func ensureType(ctx context.Context, client apiextensions.CustomResourceDefinitionsGetter, crd *apiextensionsv1.CustomResourceDefinition) error {
	crds := client.CustomResourceDefinitions()
	found, err := crds.Get(ctx, crd.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if found, err = crds.Create(ctx, crd, metav1.CreateOptions{FieldManager: fieldManager}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	case err != nil:
		return err
	case !covers(found, crd):
		found.Spec.Versions = crd.Spec.Versions
		metav1.SetMetaDataAnnotation(&found.ObjectMeta, v1alpha1.AnnotationFormat, crd.Annotations[v1alpha1.AnnotationFormat])
		if found, err = crds.Update(ctx, found, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil && !apierrors.IsConflict(err) {
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
		pause(ctx, 50*time.Millisecond)
		if found, err = crds.Get(ctx, crd.Name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
}

// covers reports whether a definition serves ours: one that has the same
// versions with the same schemas, or is a newer xb's, which is not taken back.
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

// formatOf is the format of publications that a definition says it has; zero: it does not.
func formatOf(crd *apiextensionsv1.CustomResourceDefinition) int {
	format, err := strconv.Atoi(crd.Annotations[v1alpha1.AnnotationFormat])
	if err != nil {
		return 0
	}
	return format
}

// serviceRanges are the addresses of the cluster's Services; nil if it does not
// tell.
func (t *term) serviceRanges(ctx context.Context) (found []netip.Prefix) {
	ranges, err := t.own.kube.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	for _, cidr := range ranges.Spec.CIDRs {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			found = append(found, p.Masked())
		}
	}
	return found
}

// serverAddresses are those of the cluster's own API servers, as far as it tells.
func (t *term) serverAddresses(ctx context.Context) (found []netip.Prefix) {
	all, err := t.own.kube.DiscoveryV1().EndpointSlices(apiService().Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + apiService().Name,
	})
	if err != nil {
		return nil
	}
	for _, s := range all.Items {
		for _, e := range s.Endpoints {
			for _, address := range e.Addresses {
				if a, err := netip.ParseAddr(address); err == nil {
					found = append(found, netip.PrefixFrom(a, a.BitLen()))
				}
			}
		}
	}
	return found
}

// families are the IP families that Services of the cluster can have, as their
// ranges or its own first Service tell; nil if that cannot be read.
func (t *term) families(ctx context.Context, services []netip.Prefix) []corev1.IPFamily {
	if len(services) == 0 {
		svc, err := t.own.kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return svc.Spec.IPFamilies
	}
	var families []corev1.IPFamily
	for _, p := range services {
		if p.Addr().Is4() {
			families = append(families, corev1.IPv4Protocol)
		} else {
			families = append(families, corev1.IPv6Protocol)
		}
	}
	return families
}

// mostRanges is how many pod ranges a lease lists; clusters of more nodes merge
// them to fewer, as a rule.
const mostRanges = 100

// podRanges are the addresses of the cluster's pods: those configured, or those
// that its nodes tell; nil if they do not.
func (t *term) podRanges(ctx context.Context) (found []netip.Prefix) {
	if len(t.cluster.PodRanges) > 0 {
		for _, cidr := range t.cluster.PodRanges {
			if p, err := netip.ParsePrefix(cidr); err == nil {
				found = append(found, p.Masked())
			}
		}
		return found
	}
	options := metav1.ListOptions{Limit: 500}
	for {
		nodes, err := t.own.kube.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			t.log.Debug("nodes cannot be listed; pod ranges are not known", "error", err)
			return nil
		}
		for _, n := range nodes.Items {
			for _, cidr := range n.Spec.PodCIDRs {
				if p, err := netip.ParsePrefix(cidr); err == nil {
					found = append(found, p.Masked())
				}
			}
		}
		if options.Continue = nodes.Continue; options.Continue == "" {
			break
		}
	}
	return merge(found)
}

// listRanges is as many of them as a lease lists.
func listRanges(all []netip.Prefix) (ranges []string) {
	for _, p := range all[:min(len(all), mostRanges)] {
		ranges = append(ranges, p.String())
	}
	return ranges
}

// merge is the same addresses in the fewest prefixes, sorted.
func merge(all []netip.Prefix) []netip.Prefix {
	all = slices.Clone(all)
	slices.SortFunc(all, netip.Prefix.Compare)
	var merged []netip.Prefix
	for _, p := range all {
		if n := len(merged); n > 0 && merged[n-1].Bits() <= p.Bits() && merged[n-1].Contains(p.Addr()) {
			continue
		}
		merged = append(merged, p)
		for n := len(merged); n > 1; n = len(merged) {
			a, b := merged[n-2], merged[n-1]
			if a.Bits() != b.Bits() || a.Bits() == 0 || a.Addr().Is4() != b.Addr().Is4() {
				break
			}
			parent := netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
			if !parent.Contains(b.Addr()) {
				break
			}
			merged = append(merged[:n-2], parent)
		}
	}
	return merged
}
