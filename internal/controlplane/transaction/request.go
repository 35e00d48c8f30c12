package transaction

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// subject is the object that an operation is about.
type subject struct {
	kind      schema.GroupVersionKind
	namespace string
	name      string // empty for a create whose name is generated
}

// subjectOf reads which object an operation is about. Its errors say what the
// operation lacks.
func subjectOf(o v1alpha1.Operation) (subject, error) {
	switch o.Verb {
	case v1alpha1.Create, v1alpha1.Update, v1alpha1.Apply:
		if o.Object == nil || o.Target != nil {
			return subject{}, fmt.Errorf("%s takes an object, and no target", o.Verb)
		}
		return subjectOfObject(o)
	case v1alpha1.Patch, v1alpha1.Delete, v1alpha1.Assert:
		if o.Target == nil || o.Object != nil {
			return subject{}, fmt.Errorf("%s takes a target, and no object", o.Verb)
		}
		s := subject{schema.FromAPIVersionAndKind(o.Target.APIVersion, o.Target.Kind), o.Target.Namespace, o.Target.Name}
		if s.name == "" {
			return s, fmt.Errorf("the target has no name")
		}
		return s, s.check()
	}
	return subject{}, fmt.Errorf("verb %q is not one of create, update, patch, apply, delete and assert", o.Verb)
}

func subjectOfObject(o v1alpha1.Operation) (subject, error) {
	var head metav1.PartialObjectMetadata
	if err := utiljson.Unmarshal(o.Object.Raw, &head); err != nil {
		return subject{}, fmt.Errorf("the object cannot be read: %w", err)
	}
	s := subject{head.GroupVersionKind(), head.Namespace, head.Name}
	if s.name == "" && (o.Verb != v1alpha1.Create || head.GenerateName == "") {
		return s, fmt.Errorf("the object has no metadata.name")
	}
	return s, s.check()
}

// check refuses what would make another path of the request's.
func (s subject) check() error {
	if s.kind.Version == "" || s.kind.Kind == "" {
		return fmt.Errorf("apiVersion or kind is missing")
	}
	for _, part := range []string{s.namespace, s.name} {
		if errs := content.IsPathSegmentName(part); part != "" && len(errs) > 0 {
			return fmt.Errorf("%q is not a name: it %s", part, strings.Join(errs, ", "))
		}
	}
	return nil
}

// resource is the path of the requests for a kind.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

// call is an operation as the plain request that would do the same.
type call struct {
	method      string
	path        string
	query       url.Values
	contentType string
	body        []byte
}

// callOf makes the plain request of an operation on s, of the kind served at r.
func callOf(o v1alpha1.Operation, s subject, r resource) (call, error) {
	c := call{query: url.Values{}, contentType: runtime.ContentTypeJSON}
	switch {
	case r.namespaced && s.namespace == "":
		return c, fmt.Errorf("%s live in namespaces, and none is given", r.Resource)
	case !r.namespaced && s.namespace != "":
		return c, fmt.Errorf("%s live in no namespace, and one is given", r.Resource)
	case o.Subresource != "" && o.Subresource != "status":
		return c, fmt.Errorf("subresource %q is not status", o.Subresource)
	case o.Subresource != "" && o.Verb != v1alpha1.Update && o.Verb != v1alpha1.Patch && o.Verb != v1alpha1.Apply:
		return c, fmt.Errorf("%s takes no subresource", o.Verb)
	case o.Preconditions != nil && *o.Preconditions == (v1alpha1.Preconditions{}): // a script may have filled in nothing
		return c, errors.New("the preconditions name neither a uid nor a resourceVersion")
	}
	name := s.name
	if o.Verb == v1alpha1.Create {
		name = ""
	}
	c.path = pathOf(r, s.namespace, name, o.Subresource)
	for key, value := range map[string]string{"fieldManager": o.FieldManager, "fieldValidation": o.FieldValidation} {
		if value != "" {
			c.query.Set(key, value)
		}
	}
	if o.Force {
		c.query.Set("force", "true")
	}
	return c, c.fill(o)
}

// fill sets method and body.
func (c *call) fill(o v1alpha1.Operation) (err error) {
	switch o.Verb {
	case v1alpha1.Create:
		c.method, c.body = http.MethodPost, o.Object.Raw
	case v1alpha1.Update:
		c.method, c.body = http.MethodPut, o.Object.Raw
	case v1alpha1.Apply:
		c.method, c.body, c.contentType = http.MethodPatch, o.Object.Raw, string(types.ApplyYAMLPatchType)
	case v1alpha1.Patch:
		if o.Patch == nil {
			return fmt.Errorf("patch takes a patch")
		}
		c.method, c.body = http.MethodPatch, o.Patch.Raw
		c.contentType, err = contentTypeOf(o.PatchType)
	case v1alpha1.Delete:
		c.method = http.MethodDelete
		options := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
		if o.PropagationPolicy != "" {
			options.PropagationPolicy = &o.PropagationPolicy
		}
		if p := o.Preconditions; p != nil {
			options.Preconditions = &metav1.Preconditions{}
			if p.UID != "" {
				options.Preconditions.UID = &p.UID
			}
			if p.ResourceVersion != "" {
				options.Preconditions.ResourceVersion = &p.ResourceVersion
			}
		}
		c.body, err = json.Marshal(options)
	case v1alpha1.Assert:
		c.method = http.MethodGet
		if o.Absent && o.Preconditions != nil {
			err = fmt.Errorf("an object that is absent meets no preconditions")
		}
	}
	return err
}

func contentTypeOf(p v1alpha1.PatchType) (string, error) {
	switch p {
	case v1alpha1.MergePatch, "":
		return string(types.MergePatchType), nil
	case v1alpha1.JSONPatch:
		return string(types.JSONPatchType), nil
	case v1alpha1.StrategicPatch:
		return string(types.StrategicMergePatchType), nil
	}
	return "", fmt.Errorf("patch type %q is not one of merge, json and strategic", p)
}

// pathOf is the path of a resource, or with a name that of an object.
func pathOf(r resource, namespace, name, subresource string) string {
	parts := []string{"/apis", r.Group, r.Version}
	if r.Group == "" {
		parts = []string{"/api", r.Version}
	}
	if r.namespaced {
		parts = append(parts, "namespaces", namespace)
	}
	for _, part := range []string{r.Resource, name, subresource} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}
