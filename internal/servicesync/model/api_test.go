package model_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// api is one API server: objects, and the history of each kind.
type api struct {
	rv      int
	objects map[string]model.Object
	log     []change
}

type change struct {
	kind, key string
	object    model.Object // nil: deleted
}

func kindOf(o model.Object) string { return strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1.") }

func keyOf(o model.Object) string { return kindOf(o) + " " + o.GetNamespace() + "/" + o.GetName() }

func (a *api) put(o model.Object, create bool) {
	if now := a.objects[keyOf(o)]; now != nil && mustJSON(now) == mustJSON(o) {
		return // nothing is written
	}
	a.rv++
	if s, ok := o.(*corev1.Service); ok && s.Spec.ClusterIP == "" && s.Spec.Type != corev1.ServiceTypeExternalName {
		s.Spec.ClusterIP = "10.96.0.9" // as the server does
	}
	if create {
		o.SetUID(types.UID(fmt.Sprint("uid-", a.rv)))
	}
	o.SetResourceVersion(strconv.Itoa(a.rv))
	a.objects[keyOf(o)] = o
	a.log = append(a.log, change{kindOf(o), keyOf(o), o})
}

func (a *api) remove(o model.Object) {
	delete(a.objects, keyOf(o))
	a.log = append(a.log, change{kindOf(o), keyOf(o), nil})
	if s, ok := o.(*corev1.Service); ok { // the garbage collector
		for _, k := range slices.Sorted(maps.Keys(a.objects)) {
			if es, ok := a.objects[k].(*discoveryv1.EndpointSlice); ok && es.Labels[discoveryv1.LabelServiceName] == s.Name {
				a.remove(es)
			}
		}
	}
}

func (a *api) service() *corev1.Service {
	s, _ := a.objects["*v1.Service "+key.String()].(*corev1.Service)
	return s
}

func (a *api) slices() []*discoveryv1.EndpointSlice {
	return all[*discoveryv1.EndpointSlice](a.objects)
}

func all[T model.Object](objects map[string]model.Object) []T {
	var out []T
	for _, k := range slices.Sorted(maps.Keys(objects)) {
		if o, ok := objects[k].(T); ok {
			out = append(out, o)
		}
	}
	return out
}

// view is what a reader has seen of an API: of each kind a prefix of its
// history, of different length.
type view struct {
	of      *api
	at      map[string]int // by kind: how much of the log
	objects map[string]model.Object
	listed  bool
}

var kinds = []string{"*v1.Service", "*v1.EndpointSlice", "*v1.Endpoints", "PublishedService", "PublishedSlice", "ClusterLease", "*v1beta1.ServiceExport", "*v1beta1.ServiceImport"}

func newView(of *api) *view {
	return &view{of: of, at: make(map[string]int), objects: make(map[string]model.Object)}
}

// advance shows more of a kind.
func (v *view) advance(kind string, to int) {
	for i := v.at[kind]; i < to; i++ {
		if c := v.of.log[i]; c.kind == kind {
			if c.object == nil {
				delete(v.objects, c.key)
			} else {
				v.objects[c.key] = c.object
			}
		}
	}
	v.at[kind] = max(to, v.at[kind])
}

func (v *view) catchUp() {
	for _, k := range kinds {
		v.advance(k, len(v.of.log))
	}
	v.listed = true
}
