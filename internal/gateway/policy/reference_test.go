package policy

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/apis/example/install"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

// effect is what a server has carried out.
type effect struct {
	Verb        string
	Resource    string
	Subresource string
	Namespace   string
	Name        string // of the object; "" of a collection
	Creates     bool
	DryRun      bool
}

// effects are those of one request.
type effects struct{ all []effect }

type effectsKey struct{}

func note(ctx context.Context, e effect) {
	if to, ok := ctx.Value(effectsKey{}).(*effects); ok {
		to.all = append(to.all, e)
	}
}

// The reference server has pods, in namespaces, and nodes, which are in none. Of
// each the object "there" exists, in every namespace.
const there = "there"

var referenceGroup = examplev1.SchemeGroupVersion

// referenceKind is what the discovery of the reference server says.
func referenceKind(gvr schema.GroupVersionResource) (canonical.Kind, error) {
	kind := canonical.Kind{GroupVersionKind: referenceGroup.WithKind("Pod"), Namespaced: gvr.Resource == "pods", Subresources: []string{"status"}}
	if gvr.GroupVersion() != referenceGroup || gvr.Resource != "pods" && gvr.Resource != "nodes" {
		return canonical.Kind{}, apierrors.NewNotFound(gvr.GroupResource(), "")
	}
	return kind, nil
}

// recorder is a storage that keeps nothing, and notes what it is told to do.
type recorder struct {
	resource, subresource string
	namespaced            bool
}

var (
	_ rest.Creater           = &recorder{}
	_ rest.Patcher           = &recorder{}
	_ rest.Lister            = &recorder{}
	_ rest.Watcher           = &recorder{}
	_ rest.GracefulDeleter   = &recorder{}
	_ rest.CollectionDeleter = &recorder{}
	_ rest.Scoper            = &recorder{}
)

func (s *recorder) New() runtime.Object     { return &example.Pod{} }
func (s *recorder) NewList() runtime.Object { return &example.PodList{} }
func (s *recorder) Destroy()                {}
func (s *recorder) NamespaceScoped() bool   { return s.namespaced }
func (s *recorder) GetSingularName() string { return strings.TrimSuffix(s.resource, "s") }
func (s *recorder) ConvertToTable(context.Context, runtime.Object, runtime.Object) (*metav1.Table, error) {
	return &metav1.Table{}, nil
}

// did notes what the storage was asked to do, by the verb of the request.
func (s *recorder) did(ctx context.Context, name string, creates, dry bool) {
	info, _ := request.RequestInfoFrom(ctx)
	note(ctx, effect{info.Verb, s.resource, s.subresource, request.NamespaceValue(ctx), name, creates, dry})
}

func (s *recorder) Create(ctx context.Context, o runtime.Object, _ rest.ValidateObjectFunc, opts *metav1.CreateOptions) (runtime.Object, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	s.did(ctx, m.GetName(), true, dryrun.IsDryRun(opts.DryRun))
	return o, nil
}

func (s *recorder) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	info, _ := request.RequestInfoFrom(ctx)
	if info.Verb == "get" {
		s.did(ctx, name, false, false)
	}
	if name != there {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: s.resource}, name)
	}
	return &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: request.NamespaceValue(ctx), UID: "u", ResourceVersion: "1"}}, nil
}

func (s *recorder) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, force bool, opts *metav1.UpdateOptions) (runtime.Object, bool, error) {
	old, err := s.Get(ctx, name, nil)
	creates := err != nil
	if creates {
		old = s.New()
	}
	o, err := objInfo.UpdatedObject(ctx, old)
	if err != nil {
		return nil, false, err
	}
	if creates && s.subresource != "" {
		return nil, false, apierrors.NewNotFound(schema.GroupResource{Resource: s.resource}, name)
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return nil, false, err
	}
	s.did(ctx, m.GetName(), creates, dryrun.IsDryRun(opts.DryRun))
	return o, creates, nil
}

func (s *recorder) Delete(ctx context.Context, name string, _ rest.ValidateObjectFunc, _ *metav1.DeleteOptions) (runtime.Object, bool, error) {
	s.did(ctx, name, false, false)
	return &metav1.Status{Status: metav1.StatusSuccess}, true, nil
}

func (s *recorder) DeleteCollection(ctx context.Context, _ rest.ValidateObjectFunc, _ *metav1.DeleteOptions, _ *metainternalversion.ListOptions) (runtime.Object, error) {
	s.did(ctx, "", false, false)
	return &example.PodList{}, nil
}

func (s *recorder) List(ctx context.Context, _ *metainternalversion.ListOptions) (runtime.Object, error) {
	s.did(ctx, "", false, false)
	return &example.PodList{}, nil
}

func (s *recorder) Watch(ctx context.Context, _ *metainternalversion.ListOptions) (watch.Interface, error) {
	s.did(ctx, "", false, false)
	return nil, apierrors.NewResourceExpired("what is of interest has been noted")
}

// subresource has no collection, and creates nothing.
type subresource struct{ r *recorder }

func (s subresource) New() runtime.Object { return s.r.New() }
func (s subresource) Destroy()            {}
func (s subresource) Get(ctx context.Context, name string, o *metav1.GetOptions) (runtime.Object, error) {
	return s.r.Get(ctx, name, o)
}
func (s subresource) Update(ctx context.Context, name string, i rest.UpdatedObjectInfo, c rest.ValidateObjectFunc, u rest.ValidateObjectUpdateFunc, force bool, o *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return s.r.Update(ctx, name, i, c, u, force, o)
}

// newReference is a server made of k8s.io/apiserver's own handlers.
func newReference() (http.Handler, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	scheme.AddKnownTypes(example.SchemeGroupVersion, &example.PodList{})
	scheme.AddKnownTypes(referenceGroup, &examplev1.PodList{})
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme)
	handler := genericserver.NewAPIServerHandler("reference", codecs, func(h http.Handler) http.Handler { return h }, nil)
	pods, nodes := &recorder{"pods", "", true}, &recorder{"nodes", "", false}
	group := endpoints.APIGroupVersion{
		Storage: map[string]rest.Storage{
			"pods": pods, "pods/status": subresource{&recorder{"pods", "status", true}},
			"nodes": nodes, "nodes/status": subresource{&recorder{"nodes", "status", false}},
		},
		Root: genericserver.APIGroupPrefix, GroupVersion: referenceGroup, Serializer: codecs, ParameterCodec: runtime.NewParameterCodec(scheme),
		Typer: scheme, Creater: scheme, Convertor: scheme, UnsafeConvertor: runtime.UnsafeObjectConvertor(scheme), Defaulter: scheme,
		Namer: meta.NewAccessor(), TypeConverter: managedfields.NewDeducedTypeConverter(),
		EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(), MaxRequestBodyBytes: 3 << 20,
	}
	if _, _, err := group.InstallREST(handler.GoRestfulContainer); err != nil {
		return nil, err
	}
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return filters.WithAuditInit(filters.WithRequestInfo(handler, resolver)), nil
}

// careless reads requests as servers have been seen to, that are not made of
// Kubernetes' own parts. Where a request can be read in two ways it takes the
// one that Kubernetes does not.
func careless(w http.ResponseWriter, r *http.Request) {
	query, _ := url.ParseQuery(strings.ReplaceAll(r.URL.RawQuery, ";", "&"))
	last := func(name string) (value string) {
		for k, v := range query {
			if strings.EqualFold(k, name) {
				value = v[len(v)-1]
			}
		}
		return value
	}
	method := strings.ToUpper(r.Method)
	for k, v := range r.Header {
		if strings.Contains(strings.ToLower(strings.ReplaceAll(k, "_", "-")), "method") {
			method = v[0]
		}
	}
	if m := last("_method"); m != "" {
		method = m
	}
	path := r.URL.Path
	if p, err := url.PathUnescape(path); err == nil {
		path = p
	}
	var parts []string
	for s := range strings.SplitSeq(path, "/") {
		lower := strings.ToLower(s)
		if s, _, _ = strings.Cut(s, ";"); s != "" && s != "." && lower != "watch" && lower != "proxy" {
			parts = append(parts, s)
		}
	}
	if len(parts) < 4 || !strings.EqualFold(parts[0], "apis") || !strings.EqualFold(parts[1], referenceGroup.Group) {
		return
	}
	e := effect{}
	if parts = parts[3:]; strings.EqualFold(parts[0], "namespaces") && len(parts) > 2 {
		e.Namespace, parts = strings.ToLower(parts[1]), parts[2:]
	}
	e.Resource = strings.ToLower(parts[0])
	if len(parts) > 1 {
		e.Name = parts[1]
	}
	if len(parts) > 2 && strings.EqualFold(parts[2], "status") {
		e.Subresource = "status"
	}
	for _, o := range carelessObjects(r) {
		e := e
		if e.Subresource == "" {
			o.into(&e)
		}
		carryOut(r.Context(), e, method, last("watch"))
	}
	w.WriteHeader(http.StatusCreated)
}

func carryOut(ctx context.Context, e effect, method, watches string) {
	if e.Resource != "pods" {
		e.Namespace = ""
	}
	writes := e.Subresource == ""
	switch method {
	case http.MethodGet, http.MethodHead:
		e.Verb = "get"
		if watches != "" && watches != "false" && watches != "0" {
			e.Verb = "watch"
		} else if e.Name == "" {
			e.Verb = "list"
		}
	case http.MethodPost:
		e.Verb, e.Creates = "create", writes
	case http.MethodPut:
		e.Verb, e.Creates = "update", writes && e.Name != there
	case http.MethodPatch:
		e.Verb, e.Creates = "patch", writes && e.Name != there
	case http.MethodDelete:
		e.Verb = "delete"
		if e.Name == "" {
			e.Verb = "deletecollection"
		}
	default:
		return
	}
	note(ctx, e)
}

// claims are what an object says of itself.
type claims struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Items    []claims
}

// into makes an effect be of the object.
func (c claims) into(e *effect) {
	switch strings.ToLower(c.Kind) {
	case "pod", "":
	default:
		e.Resource = strings.ToLower(c.Kind) + "s"
	}
	if c.Metadata.Namespace != "" {
		e.Namespace = c.Metadata.Namespace
	}
	if c.Metadata.Name != "" {
		e.Name = c.Metadata.Name
	}
}

// carelessObjects are those in a body, whatever its type says, compressed or
// not; one that says nothing if there is none.
func carelessObjects(r *http.Request) []claims {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	if r.Header.Get("Content-Encoding") == "gzip" {
		if z, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, _ = io.ReadAll(z)
		}
	}
	if !slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, strings.ToUpper(r.Method)) {
		return []claims{{}}
	}
	var found []claims
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		var one claims // in any letters, and the last of two that are alike
		if err := d.Decode(&one); err != nil {
			break
		}
		found = append(found, one)
	}
	for _, f := range found {
		found = append(found, f.Items...)
	}
	if len(found) == 0 {
		found = []claims{{}}
	}
	return found
}
