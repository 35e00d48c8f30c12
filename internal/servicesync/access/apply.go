package access

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/plan"
)

// Apply carries out one write. It returns the written object with the UID and
// resourceVersion that the server assigned; nil after a delete. A conflict means that
// the write was decided on an older state and changed nothing: see Overtaken. After any
// other error the write may have been carried out, unless it was Refused, so the caller
// must read the state again before it decides.
func (a *API) Apply(ctx context.Context, w plan.Write) (plan.Object, error) {
	client, resource, err := a.Resource(w.Object)
	if err != nil {
		return nil, err
	}
	out := w.Object.DeepCopyObject().(plan.Object)
	switch w.Verb {
	case plan.Create:
		err = send(ctx, addressed(client.Post().Resource(resource), w.Object).Body(out), out)
	case plan.Update:
		err = a.update(ctx, client, resource, "", w, out)
	case plan.UpdateStatus:
		err = a.update(ctx, client, resource, "status", w, out)
	case plan.Delete:
		uid, version := w.Object.GetUID(), w.Object.GetResourceVersion()
		background := metav1.DeletePropagationBackground
		req := client.Delete().Resource(resource).Name(w.Object.GetName())
		err = within(req, w.Object).Body(&metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
			PropagationPolicy: &background,
		}).Do(ctx).Error()
		out = nil
		if apierrors.IsNotFound(err) {
			err = nil
		}
	default:
		return nil, fmt.Errorf("carry out %q: no such verb", w.Verb)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s %s: %w", w.Verb, KindOf(w.Object), ObjectName(w.Object), err)
	}
	return out, nil
}

// update replaces w.Before by w.Object; it fails with a conflict if the server no longer
// has w.Before.
func (a *API) update(ctx context.Context, client rest.Interface, resource, sub string, w plan.Write, out plan.Object) error {
	if ours(w.Object) {
		out.SetResourceVersion(w.Before.GetResourceVersion())
		out.SetUID(w.Before.GetUID())
		// Tracking the owners of fields costs the API server a quarter of the write,
		// and these objects have one owner. One empty entry turns the tracking off.
		out.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
		req := client.Put().Resource(resource).SubResource(subresources(sub)...).Name(w.Object.GetName())
		return send(ctx, addressed(req, w.Object).Body(out), out)
	}
	patch, err := Difference(w.Before, w.Object)
	if err != nil {
		return err
	}
	req := client.Patch(types.MergePatchType).Resource(resource).SubResource(subresources(sub)...).Name(w.Object.GetName())
	return send(ctx, addressed(req, w.Object).Body(patch), out)
}

// metadataOnly asks for the metadata of the written object only, because the rest is
// known. A server that cannot return metadata alone returns the whole object.
const metadataOnly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// send carries out a write, and sets the UID and resourceVersion of out.
func send(ctx context.Context, req *rest.Request, out plan.Object) error {
	var written metav1.PartialObjectMetadata
	if err := req.SetHeader("Accept", metadataOnly).Do(ctx).Into(&written); err != nil {
		return err
	}
	out.SetUID(written.UID)
	out.SetResourceVersion(written.ResourceVersion)
	return nil
}

func subresources(sub string) []string {
	if sub == "" {
		return nil
	}
	return []string{sub}
}

// addressed sets the namespace and field manager of a write of obj. Objects of this
// project's group are validated strictly, because an API server with older definitions
// would otherwise silently drop new fields.
func addressed(req *rest.Request, obj plan.Object) *rest.Request {
	if isOfGroup(obj) {
		req = req.Param("fieldValidation", metav1.FieldValidationStrict)
	}
	return within(req.Param("fieldManager", FieldManager), obj)
}

func within(req *rest.Request, obj plan.Object) *rest.Request {
	if ns := obj.GetNamespace(); ns != "" {
		return req.Namespace(ns)
	}
	return req
}

// ours reports whether only this controller writes the object, so that the whole object
// may be sent. For other objects only the difference is sent; that includes Services and
// namespaces that this controller created, because others add labels and annotations.
func ours(obj plan.Object) bool {
	_, slice := obj.(*discoveryv1.EndpointSlice)
	return isOfGroup(obj) || slice && obj.GetLabels()[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy
}

func isOfGroup(obj plan.Object) bool {
	switch obj.(type) {
	case *v1alpha1.PublishedService, *v1alpha1.PublishedSlice, *v1alpha1.ClusterLease:
		return true
	default:
		return false
	}
}

// Difference returns the merge patch from before to after. The server refuses the patch
// with a conflict if it no longer has before.
func Difference(before, after plan.Object) ([]byte, error) {
	was, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", ObjectName(before), err)
	}
	after = after.DeepCopyObject().(plan.Object)
	after.SetResourceVersion("")
	after.SetUID("")
	after.SetManagedFields(before.GetManagedFields())
	is, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", ObjectName(after), err)
	}
	patch, err := jsonpatch.CreateMergePatch(was, is)
	if err != nil {
		return nil, fmt.Errorf("compare %s with what it should be: %w", ObjectName(before), err)
	}
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(patch))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return nil, fmt.Errorf("read patch of %s: %w", ObjectName(before), err)
	}
	meta, ok := fields["metadata"].(map[string]any)
	if !ok {
		meta = make(map[string]any)
		fields["metadata"] = meta
	}
	meta["resourceVersion"], meta["uid"] = before.GetResourceVersion(), before.GetUID()
	return json.Marshal(fields)
}

// ObjectName returns NAMESPACE/NAME, or NAME if the object has no namespace.
func ObjectName(obj metav1.Object) string {
	if obj.GetNamespace() == "" {
		return obj.GetName()
	}
	return obj.GetNamespace() + "/" + obj.GetName()
}

// Overtaken reports whether a write failed because the object had changed since the
// decision. The write changed nothing, and the caller decides again.
func Overtaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// Refused reports whether the server answered that it did not carry out a write.
func Refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}
