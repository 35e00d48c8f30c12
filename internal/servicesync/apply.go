package servicesync

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
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// apply carries out one write, and returns the object as it was asked for, with
// the identity and version that the server gave it; nil after a delete. A
// conflict means that the write was decided on something that is no longer so,
// and that nothing was changed. Any other error may mean that the write was
// carried out: look before deciding anything.
func (a *api) apply(ctx context.Context, w model.Write) (model.Object, error) {
	client, resource, err := a.place(w.Object)
	if err != nil {
		return nil, err
	}
	out := w.Object.DeepCopyObject().(model.Object)
	switch w.Verb {
	case model.Create:
		err = send(ctx, addressed(client.Post().Resource(resource), w.Object).Body(out), out)
	case model.Update:
		err = a.update(ctx, client, resource, "", w, out)
	case model.UpdateStatus:
		err = a.update(ctx, client, resource, "status", w, out)
	case model.Delete:
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
		return nil, fmt.Errorf("%s %s %s: %w", w.Verb, kindOf(w.Object), objectName(w.Object), err)
	}
	return out, nil
}

// update writes w.Object over w.Before, if that is still what is there.
func (a *api) update(ctx context.Context, client rest.Interface, resource, sub string, w model.Write, out model.Object) error {
	if ours(w.Object) {
		out.SetResourceVersion(w.Before.GetResourceVersion())
		out.SetUID(w.Before.GetUID())
		// Nobody shares these objects, and who owns which of their fields costs the
		// API server a quarter of the write. One empty entry is how to be rid of it.
		out.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
		req := client.Put().Resource(resource).SubResource(subresources(sub)...).Name(w.Object.GetName())
		return send(ctx, addressed(req, w.Object).Body(out), out)
	}
	patch, err := difference(w.Before, w.Object)
	if err != nil {
		return err
	}
	req := client.Patch(types.MergePatchType).Resource(resource).SubResource(subresources(sub)...).Name(w.Object.GetName())
	return send(ctx, addressed(req, w.Object).Body(patch), out)
}

// metadataOnly asks for the metadata of what was written, for the rest is known;
// a server that cannot give that gives the whole.
const metadataOnly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// send carries out a write of out.
func send(ctx context.Context, req *rest.Request, out model.Object) error {
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

// addressed has a write go to obj in the controller's name. An API server with older
// definitions of this group's types refuses what it would otherwise leave out.
func addressed(req *rest.Request, obj model.Object) *rest.Request {
	if isOfGroup(obj) {
		req = req.Param("fieldValidation", metav1.FieldValidationStrict)
	}
	return within(req.Param("fieldManager", fieldManager), obj)
}

func within(req *rest.Request, obj model.Object) *rest.Request {
	if ns := obj.GetNamespace(); ns != "" {
		return req.Namespace(ns)
	}
	return req
}

// ours tells whether only this controller writes to the object, so that it may
// be written whole. Of anybody else's only the difference is sent; also of Services
// and namespaces that it made, for others put things on them.
func ours(obj model.Object) bool {
	_, slice := obj.(*discoveryv1.EndpointSlice)
	return isOfGroup(obj) || slice && obj.GetLabels()[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy
}

func isOfGroup(obj model.Object) bool {
	switch obj.(type) {
	case *v1alpha1.PublishedService, *v1alpha1.PublishedSlice, *v1alpha1.ClusterLease:
		return true
	default:
		return false
	}
}

// difference is the merge patch from before to after, which the server takes
// only if before is still what it has.
func difference(before, after model.Object) ([]byte, error) {
	was, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", objectName(before), err)
	}
	after = after.DeepCopyObject().(model.Object)
	after.SetResourceVersion("")
	after.SetUID("")
	after.SetManagedFields(before.GetManagedFields())
	is, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", objectName(after), err)
	}
	patch, err := jsonpatch.CreateMergePatch(was, is)
	if err != nil {
		return nil, fmt.Errorf("compare %s with what it should be: %w", objectName(before), err)
	}
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(patch))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return nil, fmt.Errorf("read patch of %s: %w", objectName(before), err)
	}
	meta, ok := fields["metadata"].(map[string]any)
	if !ok {
		meta = make(map[string]any)
		fields["metadata"] = meta
	}
	meta["resourceVersion"], meta["uid"] = before.GetResourceVersion(), before.GetUID()
	return json.Marshal(fields)
}

// objectName is NAMESPACE/NAME, or NAME.
func objectName(obj metav1.Object) string {
	if obj.GetNamespace() == "" {
		return obj.GetName()
	}
	return obj.GetNamespace() + "/" + obj.GetName()
}

// stale reports that a write was decided on what is no longer so: nothing was
// changed, and deciding again is all that is needed.
func stale(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// refused reports that the server did not carry out a write, and said so.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}
