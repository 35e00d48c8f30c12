package catalog

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

func checkGroups(_ context.Context, s *survey.Survey) error {
	problems := slices.Clone(s.GroupErrs)
	seen := map[string]bool{}
	for _, g := range s.Groups {
		if seen[g.Name] {
			problems = append(problems, fmt.Errorf("group %q is listed twice", g.Name))
		}
		seen[g.Name] = true
		problems = append(problems, groupProblems(g)...)
	}
	if len(s.Groups) == 0 && len(problems) == 0 {
		problems = append(problems, errors.New("/apis lists no group, and /api no version; nothing is served"))
	}
	return check.All(problems)
}

func groupProblems(g metav1.APIGroup) []error {
	var problems []error
	preferred := false
	for _, v := range g.Versions {
		want := v.Version
		if g.Name != "" {
			want = g.Name + "/" + v.Version
		}
		if v.GroupVersion != want {
			problems = append(problems, fmt.Errorf("group %q has groupVersion %q for version %q; want %q", g.Name, v.GroupVersion, v.Version, want))
		}
		preferred = preferred || v == g.PreferredVersion
	}
	if len(g.Versions) == 0 {
		problems = append(problems, fmt.Errorf("group %q has no version", g.Name))
	} else if !preferred {
		problems = append(problems, fmt.Errorf("group %q prefers version %q, which it does not list", g.Name, g.PreferredVersion.Version))
	}
	return problems
}

func checkGroup(ctx context.Context, s *survey.Survey) error {
	var problems []error
	asked := 0
	for _, g := range s.Groups {
		if g.Name == "" {
			continue
		}
		asked++
		var got metav1.APIGroup
		a, err := s.Client().JSON(ctx, "/apis/"+g.Name, &got)
		switch {
		case err != nil:
		case got.Kind != "APIGroup" || got.APIVersion != "v1":
			err = a.Errorf("want an APIGroup of v1, got a %q of %q", got.Kind, got.APIVersion)
		case got.Name != g.Name || !slices.Equal(got.Versions, g.Versions) || got.PreferredVersion != g.PreferredVersion:
			err = a.Errorf("it has name %q, versions %v and prefers %q; /apis says %q, %v and %q", got.Name, versionsOf(got), got.PreferredVersion.Version, g.Name, versionsOf(g), g.PreferredVersion.Version)
		}
		problems = append(problems, err)
	}
	if asked == 0 {
		return check.Skipf("there is no group to ask for")
	}
	return check.All(problems)
}

func versionsOf(g metav1.APIGroup) []string {
	var versions []string
	for _, v := range g.Versions {
		versions = append(versions, v.Version)
	}
	return versions
}

func checkResources(_ context.Context, s *survey.Survey) error {
	problems := slices.Clone(s.ListErrs)
	for _, list := range s.Lists {
		seen := map[string]bool{}
		for _, r := range list.APIResources {
			if seen[r.Name] {
				problems = append(problems, fmt.Errorf("%s lists %q twice", list.GroupVersion, r.Name))
			}
			seen[r.Name] = true
			if r.Name == "" || r.Kind == "" || len(r.Verbs) == 0 {
				problems = append(problems, fmt.Errorf("%s: resource %q has kind %q and verbs %v; none may be empty", list.GroupVersion, r.Name, r.Kind, r.Verbs))
			}
		}
	}
	if len(s.Lists) == 0 && len(problems) == 0 {
		return check.Skipf("there is no group version to ask for")
	}
	return check.All(problems)
}

var (
	versionName  = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
	resourceName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(/[a-zA-Z0-9.-]+)*$`)
	kindName     = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
)

func checkNames(_ context.Context, s *survey.Survey) error {
	var problems []error
	for _, g := range s.Groups {
		if g.Name != "" && len(validation.IsDNS1123Subdomain(g.Name)) > 0 {
			problems = append(problems, fmt.Errorf("group %q is no DNS name", g.Name))
		}
		for _, v := range g.Versions {
			if !versionName.MatchString(v.Version) {
				problems = append(problems, fmt.Errorf("version %q of group %q is not like v1, v1beta2 or v2alpha1", v.Version, g.Name))
			}
		}
	}
	for _, list := range s.Lists {
		for _, r := range list.APIResources {
			if !resourceName.MatchString(r.Name) {
				problems = append(problems, fmt.Errorf("%s: resource %q is not in lower case", list.GroupVersion, r.Name))
			}
			if !kindName.MatchString(r.Kind) {
				problems = append(problems, fmt.Errorf("%s: kind %q of %q is not in CamelCase", list.GroupVersion, r.Kind, r.Name))
			}
		}
	}
	return check.All(problems)
}

// acceptAggregated is what clients send: the merged form first, the old one if
// there is no other.
const acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// aggregated reads /api or /apis in the aggregated form; nil if the server has none.
func aggregated(ctx context.Context, s *survey.Survey, path string, header http.Header) (*ask.Answer, error) {
	a, err := s.Client().Get(ctx, ask.Request{Path: path, Accept: acceptAggregated, Header: header})
	if err != nil || a.Status == http.StatusNotFound {
		return nil, err
	}
	_, params, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if a.Status == http.StatusOK && (err != nil || params["as"] != "APIGroupDiscoveryList") {
		return nil, nil
	}
	return a, nil
}

const noAggregated = "the server has no aggregated discovery; clients ask it once for each group version instead"

func checkAggregated(ctx context.Context, s *survey.Survey) error {
	var got, problems []string
	for _, path := range []string{"/api", "/apis"} {
		a, err := aggregated(ctx, s, path, nil)
		if err != nil {
			return err
		}
		if a == nil {
			if path == "/api" {
				continue
			}
			return check.Skipf(noAggregated)
		}
		var list apidiscovery.APIGroupDiscoveryList
		if err := a.JSON(http.StatusOK, &list); err != nil {
			return err
		}
		if list.Kind != "APIGroupDiscoveryList" || list.APIVersion != "apidiscovery.k8s.io/v2" {
			return a.Errorf("want an APIGroupDiscoveryList of apidiscovery.k8s.io/v2, got a %q of %q", list.Kind, list.APIVersion)
		}
		got = append(got, flattenAggregated(&list)...)
	}
	want := flattenLegacy(s.Lists)
	for _, line := range minus(want, got) {
		problems = append(problems, "only by group version: "+line)
	}
	for _, line := range minus(got, want) {
		problems = append(problems, "only aggregated: "+line)
	}
	const most = 6
	if len(problems) > most {
		problems = append(problems[:most], fmt.Sprintf("and %d more", len(problems)-most))
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	return nil
}

// flattenAggregated and flattenLegacy say the same of the same, a line for each
// resource and subresource. A version that is marked stale is left out.
func flattenAggregated(list *apidiscovery.APIGroupDiscoveryList) []string {
	var lines []string
	for _, g := range list.Items {
		for _, v := range g.Versions {
			gv := strings.TrimPrefix(g.Name+"/"+v.Version, "/")
			for _, r := range v.Resources {
				namespaced := r.Scope == apidiscovery.ScopeNamespace
				if r.ResponseKind != nil { // nil: only its subresources are served
					lines = append(lines, discoveryLine(gv, r.Resource, r.ResponseKind.Kind, namespaced, r.Verbs))
				}
				for _, sub := range r.Subresources {
					kind := ""
					if sub.ResponseKind != nil {
						kind = sub.ResponseKind.Kind
					}
					lines = append(lines, discoveryLine(gv, r.Resource+"/"+sub.Subresource, kind, namespaced, sub.Verbs))
				}
			}
		}
	}
	return lines
}

func flattenLegacy(lists []*metav1.APIResourceList) []string {
	var lines []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			lines = append(lines, discoveryLine(list.GroupVersion, r.Name, r.Kind, r.Namespaced, r.Verbs))
		}
	}
	return lines
}

func discoveryLine(gv, resource, kind string, namespaced bool, verbs []string) string {
	scope := "cluster-scoped"
	if namespaced {
		scope = "namespaced"
	}
	return fmt.Sprintf("%s %s, kind %s, %s, %s", gv, resource, kind, scope, strings.Join(slices.Sorted(slices.Values(verbs)), " "))
}

// minus are the elements of a that are not in b.
func minus(a, b []string) []string {
	in := map[string]bool{}
	for _, e := range b {
		in[e] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(e string) bool { return in[e] })
}

func checkETag(ctx context.Context, s *survey.Survey) error {
	// Discovery may change between two requests; a third time it is not that.
	var problem error
	for range 3 {
		a, err := aggregated(ctx, s, "/apis", nil)
		if err != nil {
			return err
		}
		if a == nil {
			return check.Skipf(noAggregated)
		}
		tag := a.Header.Get("ETag")
		if tag == "" {
			return a.Errorf("the answer has no ETag; clients read all of it each time")
		}
		again, err := aggregated(ctx, s, "/apis", http.Header{"If-None-Match": {tag}})
		if err != nil {
			return err
		}
		if again != nil && again.Status == http.StatusNotModified {
			return nil
		}
		problem = a.Errorf("asked again with If-None-Match: %s the server does not answer 304 but sends it all once more", tag)
	}
	return problem
}

func checkVersion(ctx context.Context, s *survey.Survey) error {
	var version struct{ Major, Minor, GitVersion string }
	a, err := s.Client().Get(ctx, ask.Request{Path: "/version"})
	if err != nil {
		return err
	}
	if a.Status == http.StatusNotFound {
		return check.Skipf("the server does not say its version; kubectl version then shows the client's only")
	}
	if err := a.JSON(http.StatusOK, &version); err != nil {
		return err
	}
	if version.GitVersion == "" {
		return a.Errorf("there is no gitVersion; kubectl and Helm read it")
	}
	return nil
}
