package survey

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/weight"
)

// A Discovery is what a server's discovery by group version says. Every server
// has that form.
type Discovery struct {
	// Version is the server's gitVersion; empty if it does not say.
	Version string
	// Groups has the core group under an empty name.
	Groups []metav1.APIGroup
	// Lists are those of all group versions that can be read.
	Lists []*metav1.APIResourceList
	// Resources are those of each group's preferred version, without
	// subresources. Those of one group version follow each other.
	Resources []Resource
	// GroupErrs say what is wrong with the lists of groups.
	GroupErrs []error
	// ListErrs say what is wrong with the lists of resources.
	ListErrs []error
}

// Serves reports whether a preferred version of the group has the resource.
func (d *Discovery) Serves(group, name string) bool {
	for _, r := range d.Resources {
		if r.GroupVersion.Group == group && r.Name == name {
			return true
		}
	}
	return false
}

// OfKind is the resource whose objects are of the kind, in any version.
func (d *Discovery) OfKind(kind schema.GroupVersionKind) (Resource, bool) {
	for _, list := range d.Lists {
		if list.GroupVersion != kind.GroupVersion().String() {
			continue
		}
		for _, r := range resourcesOf(kind.GroupVersion(), list) {
			if r.Kind == kind.Kind {
				return r, true
			}
		}
	}
	return Resource{}, false
}

// mostVersions bounds how many group versions are read.
const mostVersions = 2000

// A discoverer reads a Discovery.
type discoverer struct {
	client *ask.Client
	held   *weight.Budget // for what is decoded
	found  *Discovery
}

// discover reads the discovery of a server. What is wrong with the discovery is
// no error, but a part of it; the error is that no server answers there, or that
// it admits nobody.
func discover(ctx context.Context, client *ask.Client, held *weight.Budget) (*Discovery, error) {
	groups, err := client.Get(ctx, ask.Request{Path: "/apis"})
	if err != nil {
		return nil, err
	}
	switch groups.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("it answered %d to %s; give credentials that may read the discovery (system:discovery)", groups.Status, groups.Request())
	}
	d := discoverer{client: client, held: held, found: &Discovery{}}
	var version struct{ GitVersion string }
	if _, err := client.JSON(ctx, "/version", &version); err == nil {
		d.found.Version = version.GitVersion
	}
	for _, err := range []error{d.core(ctx), d.groups(groups)} {
		if err != nil {
			d.found.GroupErrs = append(d.found.GroupErrs, err)
		}
	}
	d.resources(ctx)
	return d.found, ctx.Err()
}

// core reads the versions of the core group, if there is one.
func (d *discoverer) core(ctx context.Context) error {
	a, err := d.client.Get(ctx, ask.Request{Path: "/api"})
	if err != nil {
		return err
	}
	if a.Status == http.StatusNotFound {
		return nil // no core group: nothing wrong with that
	}
	var core metav1.APIVersions
	if err := a.JSON(http.StatusOK, &core); err != nil {
		return err
	}
	if core.Kind != "APIVersions" {
		return a.Errorf("want kind APIVersions, got %q", core.Kind)
	}
	if len(core.Versions) == 0 {
		return nil // an aggregated server that has no core group answers so
	}
	group := metav1.APIGroup{}
	for _, v := range core.Versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v, Version: v})
	}
	group.PreferredVersion = group.Versions[0]
	d.found.Groups = append(d.found.Groups, group)
	return nil
}

// groups decodes the list of groups.
func (d *discoverer) groups(a *ask.Answer) error {
	var list metav1.APIGroupList
	if err := d.held.Spend(a.Body); err != nil {
		return a.Errorf("%w", err)
	}
	if err := a.JSON(http.StatusOK, &list); err != nil {
		return err
	}
	// Servers made with k8s.io/apiserver leave apiVersion out.
	if list.Kind != "APIGroupList" || list.APIVersion != "v1" && list.APIVersion != "" {
		return a.Errorf("want an APIGroupList of v1, got a %q of %q", list.Kind, list.APIVersion)
	}
	d.found.Groups = append(d.found.Groups, list.Groups...)
	return nil
}

// resources reads the lists of all group versions.
func (d *discoverer) resources(ctx context.Context) {
	found := d.found
	for _, g := range found.Groups {
		for _, v := range g.Versions {
			if len(found.Lists)+len(found.ListErrs) >= mostVersions {
				return
			}
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			list, err := d.list(ctx, gv)
			if err != nil {
				found.ListErrs = append(found.ListErrs, err)
				continue
			}
			found.Lists = append(found.Lists, list)
			if v.Version == g.PreferredVersion.Version {
				found.Resources = append(found.Resources, resourcesOf(gv, list)...)
			}
		}
	}
}

// list reads the resources of one group version.
func (d *discoverer) list(ctx context.Context, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	a, err := d.client.Get(ctx, ask.Request{Path: VersionPath(gv)})
	if err != nil {
		return nil, err
	}
	if err := d.held.Spend(a.Body); err != nil {
		return nil, a.Errorf("with what was read before: %w", err)
	}
	var list metav1.APIResourceList
	if err := a.JSON(http.StatusOK, &list); err != nil {
		return nil, err
	}
	if list.Kind != "APIResourceList" || list.GroupVersion != gv.String() {
		return nil, a.Errorf("want an APIResourceList of %s, got a %q of %q", gv, list.Kind, list.GroupVersion)
	}
	return &list, nil
}
