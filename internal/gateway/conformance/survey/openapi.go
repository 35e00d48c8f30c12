package survey

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	gvschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/ask"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/schema"
)

// An OpenAPI is what a server's OpenAPI v3 says of the resources in its discovery.
type OpenAPI struct {
	// Err is why there is no OpenAPI v3; all else is empty then.
	Err error
	// URLs are those of the documents.
	URLs map[gvschema.GroupVersion]string
	// Unread are the errors of documents that cannot be read.
	Unread []error
	// Wrong are the errors of documents that are not OpenAPI 3.
	Wrong []error
	// Resources are those whose document was read, by Resource.String.
	Resources map[string]Traits
}

// Traits are what OpenAPI says of one resource.
type Traits struct {
	Path bool // the resource has a path
	Kind bool // its kind has a schema
	// Create and Patch are the parameters and media types of these operations;
	// nil if there is no such operation.
	Create, Patch map[string]bool
}

// mostDocuments bounds how many documents are read: there is one for each group
// version.
const mostDocuments = 200

// OpenAPI reads OpenAPI v3, at the first call after a discovery.
func (s *Survey) OpenAPI(ctx context.Context) *OpenAPI {
	if s.openapi == nil {
		s.openapi = s.readOpenAPI(ctx)
	}
	return s.openapi
}

// readOpenAPI holds one document at a time in memory.
func (s *Survey) readOpenAPI(ctx context.Context) *OpenAPI {
	o := &OpenAPI{Resources: map[string]Traits{}}
	if o.URLs, o.Err = s.documentURLs(ctx); o.Err != nil {
		return o
	}
	var document *schema.Document
	var last gvschema.GroupVersion
	asked := 0
	for _, r := range s.Resources { // those of one group version follow each other
		if r.GroupVersion != last {
			last, document = r.GroupVersion, nil
			if o.URLs[last] == "" || asked >= mostDocuments {
				continue
			}
			asked++
			document = o.read(ctx, s.client, last)
		}
		if document != nil {
			o.Resources[r.String()] = traitsOf(document, r)
		}
	}
	return o
}

// read reads the document of a group version; nil if it cannot be read.
func (o *OpenAPI) read(ctx context.Context, client *ask.Client, gv gvschema.GroupVersion) *schema.Document {
	document, err := readDocument(ctx, client, o.URLs[gv])
	if err != nil {
		o.Unread = append(o.Unread, err)
		return nil
	}
	if !strings.HasPrefix(document.OpenAPI, "3.") {
		o.Wrong = append(o.Wrong, fmt.Errorf("%s: openapi is %q; want 3.0.0", o.URLs[gv], document.OpenAPI))
	}
	return document
}

func (s *Survey) documentURLs(ctx context.Context) (map[gvschema.GroupVersion]string, error) {
	a, err := s.client.Get(ctx, ask.Request{Path: "/openapi/v3"})
	if err != nil {
		return nil, err
	}
	if a.Status == http.StatusNotFound {
		return nil, a.Errorf("the server has no OpenAPI v3; kubectl explain, validation and apply need it")
	}
	var index schema.Index
	if err := a.Document(&index); err != nil {
		return nil, err
	}
	return index.URLs(), nil
}

// Document reads the OpenAPI v3 document of a group version.
func (s *Survey) Document(ctx context.Context, gv gvschema.GroupVersion) (*schema.Document, error) {
	return readDocument(ctx, s.client, s.OpenAPI(ctx).URLs[gv])
}

func readDocument(ctx context.Context, client *ask.Client, relative string) (*schema.Document, error) {
	u, err := url.Parse(relative)
	if err != nil {
		return nil, fmt.Errorf("GET /openapi/v3: the serverRelativeURL %q cannot be read: %w", relative, err)
	}
	a, err := client.Get(ctx, ask.Request{Path: client.Below(u.Path), Query: u.Query()})
	if err != nil {
		return nil, err
	}
	var document schema.Document
	if err := a.Document(&document); err != nil {
		return nil, err
	}
	return &document, nil
}

// traitsOf is what a document says of a resource.
func traitsOf(d *schema.Document, r Resource) Traits {
	collection := r.PathTemplate()
	many, ok := d.Paths[collection]
	if !ok {
		// Reviews are made in no namespace, or in one.
		many, ok = d.Paths[r.Path("")]
	}
	one, okOne := d.Paths[collection+"/{name}"]
	return Traits{
		Path:   ok || okOne,
		Kind:   d.Describes(r.GroupVersionKind()),
		Create: d.Takes(many, many.Post),
		Patch:  d.Takes(one, one.Patch),
	}
}
