package conformance

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func openAPIChecks() []check {
	const ofOpenAPI = apiPage + "#api-specification"
	return []check{
		{id: "openapi.v3", source: apiPage + "#openapi-v3",
			convention: "OpenAPI v3 describes every group version that is served, with its paths and kinds", run: steady(checkOpenAPIv3)},
		{id: "openapi.v2", source: apiPage + "#openapi-v2",
			convention: "OpenAPI v2 describes every resource that is served, with its kind", run: steady(checkOpenAPIv2)},
		{id: "dry-run.declared", source: concepts + "#dry-run",
			convention: "what creates has the query parameter dryRun", run: declares("create", "dryRun")},
		{id: "field-validation.declared", source: concepts + "#field-validation",
			convention: "what creates has the query parameter fieldValidation", run: declares("create", "fieldValidation")},
		{id: "apply.declared", source: applyPage,
			convention: "what patches takes " + typeApply, run: declares("patch", typeApply)},
		{id: "openapi.document", source: ofOpenAPI,
			convention: "the documents that /openapi/v3 lists say openapi 3", run: checkDocuments},
	}
}

// A description is what a server's OpenAPI v3 says.
type description struct {
	err       error // there is none, or it cannot be read
	urls      map[schema.GroupVersion]string
	unread    []error           // documents that cannot be read
	wrong     []error           // documents that are not OpenAPI 3
	documents int               // that were read
	resources map[string]traits // by resource.String()
}

// traits are what is said of one resource.
type traits struct {
	path, kind    bool // it has a path; its kind has a schema
	create, patch map[string]bool
}

// mostDocuments bounds how much is read: it is a document a group version.
const mostDocuments = 200

// describe reads OpenAPI v3, once; one document at a time is in memory.
func (s *session) describe(ctx context.Context) *description {
	if s.openapi != nil {
		return s.openapi
	}
	d := &description{resources: map[string]traits{}}
	s.openapi = d
	if d.urls, d.err = s.openAPIURLs(ctx); d.err != nil {
		return d
	}
	var document *openAPIv3
	var last schema.GroupVersion
	for _, r := range s.resources { // those of one group version follow each other
		if r.gv != last {
			last, document = r.gv, nil
			if d.urls[r.gv] == "" || d.documents >= mostDocuments {
				continue
			}
			d.documents++
			var err error
			if document, err = s.openAPIDocument(ctx, d.urls[r.gv]); err != nil {
				d.unread = append(d.unread, err)
			} else if !strings.HasPrefix(document.OpenAPI, "3.") {
				d.wrong = append(d.wrong, fmt.Errorf("%s: openapi is %q; want 3.0.0", d.urls[r.gv], document.OpenAPI))
			}
		}
		if document != nil {
			d.resources[r.String()] = document.traits(r)
		}
	}
	return d
}

func (s *session) openAPIURLs(ctx context.Context) (map[schema.GroupVersion]string, error) {
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		}
	}
	a, err := s.client.ask(ctx, request{path: "/openapi/v3"})
	if err != nil {
		return nil, err
	}
	if a.status == http.StatusNotFound {
		return nil, a.errorf("the server has no OpenAPI v3; kubectl explain, validation and apply need it")
	}
	if err := a.document(&index); err != nil {
		return nil, err
	}
	urls := map[schema.GroupVersion]string{}
	for path, item := range index.Paths {
		if version, ok := strings.CutPrefix(path, "api/"); ok {
			urls[schema.GroupVersion{Version: version}] = item.URL
		} else if gv, ok := strings.CutPrefix(path, "apis/"); ok {
			if group, version, ok := strings.Cut(gv, "/"); ok {
				urls[schema.GroupVersion{Group: group, Version: version}] = item.URL
			}
		}
	}
	return urls, nil
}

func (s *session) openAPIDocument(ctx context.Context, relative string) (*openAPIv3, error) {
	u, err := url.Parse(relative)
	if err != nil {
		return nil, fmt.Errorf("GET /openapi/v3: the serverRelativeURL %q cannot be read: %w", relative, err)
	}
	path := u.Path
	if base := strings.TrimSuffix(s.client.base.Path, "/"); base != "" && strings.HasPrefix(path, base+"/") {
		path = strings.TrimPrefix(path, base)
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	var document openAPIv3
	a, err := s.client.ask(ctx, request{path: path, query: u.Query()})
	if err != nil {
		return nil, err
	}
	if err := a.document(&document); err != nil {
		return nil, err
	}
	return &document, nil
}

// document wants JSON, whatever its type is said to be: kube-apiserver itself
// says text/plain.
func (a *answer) document(v any) error {
	if err := a.is(http.StatusOK); err != nil {
		return err
	}
	return a.decode(v)
}

// openAPIv3 is what is looked at in a document.
type openAPIv3 struct {
	OpenAPI    string              `json:"openapi"`
	Paths      map[string]pathItem `json:"paths"`
	Components struct {
		Schemas    map[string]*schemaNode `json:"schemas"`
		Parameters map[string]parameter   `json:"parameters"`
	} `json:"components"`
}

type parameter struct {
	Ref  string `json:"$ref"`
	Name string `json:"name"`
}

type operation struct {
	Parameters  []parameter `json:"parameters"`
	RequestBody struct {
		Content map[string]struct{} `json:"content"`
	} `json:"requestBody"`
}

// A pathItem has the parameters that its operations share beside them.
type pathItem struct {
	Parameters []parameter `json:"parameters"`
	Post       *operation  `json:"post"`
	Patch      *operation  `json:"patch"`
}

// traits are what the document says of a resource.
func (d *openAPIv3) traits(r resource) traits {
	var t traits
	collection := r.path("")
	if r.namespaced {
		collection = versionPath(r.gv) + "/namespaces/{namespace}/" + r.name
	}
	many, ok := d.Paths[collection]
	if !ok && r.namespaced {
		// Reviews are made in no namespace, or in one.
		many, ok = d.Paths[r.path("")]
	}
	one, okOne := d.Paths[collection+"/{name}"]
	t.path = ok || okOne
	t.create, t.patch = d.said(many, many.Post), d.said(one, one.Patch)
	for _, node := range d.Components.Schemas {
		if node.is(r.gv.WithKind(r.kind)) {
			t.kind = true
		}
	}
	return t
}

// said are the parameters and media types of an operation; nil if there is no
// such operation.
func (d *openAPIv3) said(path pathItem, o *operation) map[string]bool {
	if o == nil {
		return nil
	}
	said := map[string]bool{}
	for _, p := range slices.Concat(path.Parameters, o.Parameters) {
		if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
			p = d.Components.Parameters[name]
		}
		said[p.Name] = true
	}
	for media := range o.RequestBody.Content {
		said[media] = true
	}
	return said
}

func checkOpenAPIv3(ctx context.Context, s *session) finding {
	d := s.describe(ctx)
	if d.err != nil {
		return judge(d.err)
	}
	var problems []error
	missing := map[schema.GroupVersion]bool{}
	for _, r := range s.resources {
		t, read := d.resources[r.String()]
		switch {
		case d.urls[r.gv] == "":
			if !missing[r.gv] {
				problems = append(problems, fmt.Errorf("/openapi/v3 does not list %s, which is served", r.gv))
			}
			missing[r.gv] = true
		case !read: // said already, or too many
		case !t.path:
			problems = append(problems, fmt.Errorf("the document of %s has no path of %s", r.gv, r.name))
		case !t.kind && r.can("get"):
			problems = append(problems, fmt.Errorf("the document of %s has no schema with x-kubernetes-group-version-kind %s", r.gv, r.kind))
		}
	}
	problems = append(problems, d.unread...)
	if len(d.resources) == 0 && len(problems) == 0 {
		return skip("there is no resource to describe")
	}
	return judgeAll(problems)
}

func checkDocuments(ctx context.Context, s *session) finding {
	d := s.describe(ctx)
	if d.err != nil || len(d.resources) == 0 {
		return skip("there is no document that can be read")
	}
	return judgeAll(d.wrong)
}

// declares checks what OpenAPI v3 says of every resource with the verb. It is
// how kubectl learns whether it may ask for a dry run.
func declares(verb, what string) func(context.Context, *session) finding {
	return func(ctx context.Context, s *session) finding {
		d := s.describe(ctx)
		if d.err != nil {
			return skip("there is no OpenAPI v3 to read it from")
		}
		var problems []error
		asked := 0
		for _, r := range s.resources {
			said := d.resources[r.String()].create
			if verb == "patch" {
				said = d.resources[r.String()].patch
			}
			if !r.can(verb) || said == nil {
				continue
			}
			asked++
			if !said[what] {
				problems = append(problems, fmt.Errorf("%s has %s, and its description has no %s there", r, verb, what))
			}
		}
		if asked == 0 {
			return skip("no resource that is described has %s", verb)
		}
		return judgeAll(problems)
	}
}

func checkOpenAPIv2(ctx context.Context, s *session) finding {
	a, err := s.client.ask(ctx, request{path: s.options.OpenAPIPath})
	if err != nil {
		return fail(err)
	}
	if a.status == http.StatusNotFound && s.describe(ctx).err == nil {
		return skip("the server has OpenAPI v3 only; clients older than Kubernetes 1.27 cannot read it")
	}
	var document struct {
		Swagger     string
		Paths       map[string]struct{}
		Definitions map[string]*schemaNode
	}
	if err := a.document(&document); err != nil {
		return judge(err)
	}
	if document.Swagger != "2.0" {
		return fail(a.errorf("swagger is %q; want 2.0", document.Swagger))
	}
	kinds := map[schema.GroupVersionKind]bool{}
	for _, node := range document.Definitions {
		if node == nil { // a server may give null
			continue
		}
		for _, k := range node.Kinds {
			kinds[schema.GroupVersionKind(k)] = true
		}
	}
	var problems []error
	for _, r := range s.resources {
		_, namespaced := document.Paths[versionPath(r.gv)+"/namespaces/{namespace}/"+r.name]
		_, global := document.Paths[r.path("")]
		switch {
		case !namespaced && !global:
			problems = append(problems, a.errorf("there is no path of %s", r))
		case r.can("get") && !kinds[r.gv.WithKind(r.kind)]:
			problems = append(problems, a.errorf("no definition has x-kubernetes-group-version-kind %s %s", r.gv, r.kind))
		}
	}
	return judgeAll(problems)
}
