package catalog

import (
	"context"
	"fmt"
	"net/http"

	gvschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/schema"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/survey"
)

func checkOpenAPIv3(ctx context.Context, s *survey.Survey) error {
	o := s.OpenAPI(ctx)
	if o.Err != nil {
		return o.Err
	}
	var problems []error
	missing := map[gvschema.GroupVersion]bool{}
	for _, r := range s.Resources {
		gv := r.GroupVersion
		said, read := o.Resources[r.String()]
		switch {
		case o.URLs[gv] == "":
			if !missing[gv] {
				problems = append(problems, fmt.Errorf("/openapi/v3 does not list %s, which is served", gv))
			}
			missing[gv] = true
		case !read: // in o.Unread, or beyond the number of documents that are read
		case !said.Path:
			problems = append(problems, fmt.Errorf("the document of %s has no path of %s", gv, r.Name))
		case !said.Kind && r.Can("get"):
			problems = append(problems, fmt.Errorf("the document of %s has no schema with x-kubernetes-group-version-kind %s", gv, r.Kind))
		}
	}
	problems = append(problems, o.Unread...)
	if len(o.Resources) == 0 && len(problems) == 0 {
		return check.Skipf("there is no resource to describe")
	}
	return check.All(problems)
}

func checkDocuments(ctx context.Context, s *survey.Survey) error {
	o := s.OpenAPI(ctx)
	if o.Err != nil || len(o.Resources) == 0 {
		return check.Skipf("there is no document that can be read")
	}
	return check.All(o.Wrong)
}

func createDeclares(what string) run {
	return declares("create", what, func(t survey.Traits) map[string]bool { return t.Create })
}

func patchDeclares(what string) run {
	return declares("patch", what, func(t survey.Traits) map[string]bool { return t.Patch })
}

// declares checks that OpenAPI v3 names a parameter or a media type of every
// resource with the verb. kubectl learns from it whether it may ask for a dry run.
func declares(verb, what string, operation func(survey.Traits) map[string]bool) run {
	return func(ctx context.Context, s *survey.Survey) error {
		o := s.OpenAPI(ctx)
		if o.Err != nil {
			return check.Skipf("there is no OpenAPI v3 to read it from")
		}
		var problems []error
		asked := 0
		for _, r := range s.Resources {
			takes := operation(o.Resources[r.String()])
			if !r.Can(verb) || takes == nil {
				continue
			}
			asked++
			if !takes[what] {
				problems = append(problems, fmt.Errorf("%s has %s, and its description has no %s there", r, verb, what))
			}
		}
		if asked == 0 {
			return check.Skipf("no resource that is described has %s", verb)
		}
		return check.All(problems)
	}
}

func checkOpenAPIv2(ctx context.Context, s *survey.Survey) error {
	a, err := s.Client().Get(ctx, ask.Request{Path: s.Settings.OpenAPIPath})
	if err != nil {
		return err
	}
	if a.Status == http.StatusNotFound && s.OpenAPI(ctx).Err == nil {
		return check.Skipf("the server has OpenAPI v3 only; clients older than Kubernetes 1.27 cannot read it")
	}
	var document schema.DocumentV2
	if err := a.Document(&document); err != nil {
		return err
	}
	if document.Swagger != "2.0" {
		return a.Errorf("swagger is %q; want 2.0", document.Swagger)
	}
	kinds := document.Kinds()
	var problems []error
	for _, r := range s.Resources {
		_, template := document.Paths[r.PathTemplate()]
		_, plain := document.Paths[r.Path("")]
		switch {
		case !template && !plain:
			problems = append(problems, a.Errorf("there is no path of %s", r))
		case r.Can("get") && !kinds[r.GroupVersionKind()]:
			problems = append(problems, a.Errorf("no definition has x-kubernetes-group-version-kind %s %s", r.GroupVersion, r.Kind))
		}
	}
	return check.All(problems)
}
