package discovery

import (
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// Handler answers /api, /apis, /apis/GROUP, /apis/GROUP/VERSION, /api/VERSION, /openapi/v2,
// /openapi/v3 and /version from the index, and other paths with 404.
func (x *Index) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /api", aggregated.WrapAggregatedDiscoveryToHandler(x.answer((*view).coreVersions), x.api, nil))
	mux.Handle("GET /apis", aggregated.WrapAggregatedDiscoveryToHandler(x.answer((*view).groupList), x.apis, nil))
	mux.Handle("GET /apis/{group}", x.answer((*view).apiGroup))
	mux.Handle("GET /apis/{group}/{version}", x.answer((*view).resourceList))
	mux.Handle("GET /api/{version}", x.answer((*view).resourceList))
	mux.HandleFunc("GET /openapi/v2", x.openapi.serveV2)
	mux.HandleFunc("GET /openapi/v3", x.openapi.serveV3)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, r *http.Request) {
		v := x.view.Load().version
		if v == nil {
			NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(v)
	})
	mux.HandleFunc("/", NotFound)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := strings.TrimSuffix(r.URL.Path, "/"); p != r.URL.Path {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = p, ""
		}
		mux.ServeHTTP(w, r)
	})
}

// answer serves an object of the view; if object returns nil, it answers 404.
func (x *Index) answer(object func(v *view, r *http.Request) runtime.Object) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		obj := object(x.view.Load(), r)
		if obj == nil {
			NotFound(w, r)
			return
		}
		responsewriters.WriteObjectNegotiated(codecs(), negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"},
			w, r, http.StatusOK, obj, false)
	})
}

// NotFound answers with a Kubernetes Status.
func NotFound(w http.ResponseWriter, r *http.Request) {
	WriteStatus(w, r, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "no server behind this gateway has "+r.URL.Path, 0, true))
}

// WriteStatus answers with a Kubernetes Status in a form that the caller accepts.
func WriteStatus(w http.ResponseWriter, r *http.Request, status error) {
	responsewriters.ErrorNegotiated(status, codecs(), schema.GroupVersion{Version: "v1"}, w, r)
}

func (v *view) groupList(*http.Request) runtime.Object {
	list := &metav1.APIGroupList{Groups: make([]metav1.APIGroup, 0, len(v.ordered))}
	for _, g := range v.ordered {
		list.Groups = append(list.Groups, g.api)
	}
	return list
}

func (v *view) coreVersions(*http.Request) runtime.Object {
	list := &metav1.APIVersions{Versions: []string{}, ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{}}
	if g, ok := v.groups[""]; ok {
		for _, version := range g.api.Versions {
			list.Versions = append(list.Versions, version.Version)
		}
		list.ServerAddressByClientCIDRs = append(list.ServerAddressByClientCIDRs, g.addresses...)
	}
	return list
}

func (v *view) apiGroup(r *http.Request) runtime.Object {
	g, ok := v.groups[r.PathValue("group")]
	if !ok {
		return nil
	}
	return &g.api
}

func (v *view) resourceList(r *http.Request) runtime.Object {
	g, ok := v.groups[r.PathValue("group")]
	if !ok {
		return nil
	}
	l, ok := g.versions[r.PathValue("version")]
	if !ok {
		return nil
	}
	return l
}

// codecs write the types of meta/v1 in every form that Kubernetes has.
var codecs = sync.OnceValue(func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return serializer.NewCodecFactory(scheme)
})
