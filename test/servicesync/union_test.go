package servicesync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/xbernetes/xbernetes/test/lab/cluster"
)

// TestUnionOfThree: endpoints of two other clusters share a slice, and each
// cluster's come and go by themselves.
func TestUnionOfThree(t *testing.T) {
	all := clusters(t)
	ns := namespaceIn(t, namespaceName(t), all...)
	startAll(t, []string{"NSTOWATCH=" + ns}, nil, all...)
	createService(t, all[0], ns, "web")
	for _, c := range all {
		expectService(t, c, ns, "web", nil)
	}
	annotate(t, all[0], ns, "web", mode, "union")
	pods := make(map[*cluster.Cluster]*cluster.Pod)
	for _, c := range all {
		pods[c] = addPod(t, c, ns, "web", "web-"+c.Name)
	}
	// together has every cluster serve by the pods of all, and those of each two
	// others share a slice.
	together := func(serve map[*cluster.Cluster]*cluster.Pod) {
		t.Helper()
		for c := range serve {
			expectRotation(t, c, ns, "web", slices.Collect(maps.Values(serve))...)
			eventually(t, c.Name+" has one slice of all others", func(ctx context.Context) error {
				found, err := slicesOf(ctx, c, ns, "web")
				var from []string
				for _, s := range found {
					if s.Labels[discoveryv1.LabelManagedBy] == "servicesync.xbernetes.io" {
						from = append(from, s.Annotations["servicesync.xbernetes.io/from"])
					}
				}
				if err == nil && (len(from) != 1 || strings.Count(from[0], "/") != len(serve)-1) {
					err = fmt.Errorf("they are of %q", from)
				}
				return err
			})
		}
	}
	together(pods)
	t.Log("one cluster leaves")
	last := all[2]
	annotate(t, last, ns, "web", mode, "singular")
	expectRotation(t, last, ns, "web", pods[last])
	rest := maps.Clone(pods)
	delete(rest, last)
	together(rest)
	t.Log("and is back")
	annotate(t, last, ns, "web", mode, "")
	together(pods)
}
