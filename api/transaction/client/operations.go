package client

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// Create makes object. If an object says no apiVersion and kind, it must be one of
// Kubernetes' own.
func Create(object runtime.Object) v1alpha1.Operation {
	return v1alpha1.Operation{Verb: v1alpha1.Create, Object: raw(object)}
}

// Update replaces object, which must have the resourceVersion that it was read at, if
// it shall not replace what others wrote since.
func Update(object runtime.Object) v1alpha1.Operation {
	return v1alpha1.Operation{Verb: v1alpha1.Update, Object: raw(object)}
}

// UpdateStatus replaces the status of object.
func UpdateStatus(object runtime.Object) v1alpha1.Operation {
	return v1alpha1.Operation{Verb: v1alpha1.Update, Object: raw(object), Subresource: "status"}
}

// Apply applies object on the server's side, as the field manager of that name.
func Apply(object runtime.Object, manager string) v1alpha1.Operation {
	return v1alpha1.Operation{Verb: v1alpha1.Apply, Object: raw(object), FieldManager: manager}
}

// Patch changes an object by a merge patch, which is JSON.
func Patch(apiVersion, kind, namespace, name string, patch []byte) v1alpha1.Operation {
	o := of(v1alpha1.Patch, apiVersion, kind, namespace, name)
	o.Patch = &runtime.RawExtension{Raw: patch}
	return o
}

// Delete deletes an object.
func Delete(apiVersion, kind, namespace, name string) v1alpha1.Operation {
	return of(v1alpha1.Delete, apiVersion, kind, namespace, name)
}

// Exists asserts that an object is there.
func Exists(apiVersion, kind, namespace, name string) v1alpha1.Operation {
	return of(v1alpha1.Assert, apiVersion, kind, namespace, name)
}

// Absent asserts that an object is not there.
func Absent(apiVersion, kind, namespace, name string) v1alpha1.Operation {
	o := of(v1alpha1.Assert, apiVersion, kind, namespace, name)
	o.Absent = true
	return o
}

// Unchanged asserts that an object is at a resourceVersion.
func Unchanged(apiVersion, kind, namespace, name, resourceVersion string) v1alpha1.Operation {
	o := of(v1alpha1.Assert, apiVersion, kind, namespace, name)
	o.Preconditions = &v1alpha1.Preconditions{ResourceVersion: resourceVersion}
	return o
}

func of(verb v1alpha1.Verb, apiVersion, kind, namespace, name string) v1alpha1.Operation {
	return v1alpha1.Operation{Verb: verb, Target: &v1alpha1.Target{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}}
}

// raw encodes object with its apiVersion and kind. What cannot be encoded is left to
// the server to refuse.
func raw(object runtime.Object) *runtime.RawExtension {
	if object.GetObjectKind().GroupVersionKind().Empty() {
		if kinds, _, err := scheme.Scheme.ObjectKinds(object); err == nil {
			object = object.DeepCopyObject()
			object.GetObjectKind().SetGroupVersionKind(kinds[0])
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		text, _ = json.Marshal(fmt.Sprintf("the object cannot be encoded: %v", err))
	}
	return &runtime.RawExtension{Raw: text}
}
