// Package canonical turns a request, as k8s.io/apiserver reads it, into the one form in which
// it is sent on: that form says only what was read. The package refuses requests that two
// servers could read differently. It never decides who may do what, and asks no server.
package canonical

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Kind is what a server's discovery says of a resource.
type Kind struct {
	schema.GroupVersionKind
	// Namespaced says that the kind's objects are in namespaces.
	Namespaced bool
	// Subresources are the subresources that discovery lists, such as "status".
	Subresources []string
}

// Kinds finds the kind of a resource in a server's discovery. The error is meant for the
// caller; it is NotFound if discovery does not show the resource.
type Kinds func(schema.GroupVersionResource) (Kind, error)

// Request is a request with one meaning.
type Request struct {
	// Info is apiserver's own reading of the request that Sent returns. For a list, a
	// watch and a deletecollection it has no name and no selectors: a server may ignore
	// those, so the request is taken to be about the whole collection.
	Info request.RequestInfo
	// Kind is the kind of Info's resource, by discovery; zero outside the API.
	Kind Kind
	// DryRun says that the request asks the server to change nothing.
	DryRun bool
	// Upgrade says that the request asks for another protocol.
	Upgrade bool
	// MediaType is the body's media type, if the request writes a whole object.
	MediaType string
	// Object is the object in the body. ReadObject sets it.
	Object Object

	sent    *http.Request
	release func()
}

// Read reads a request except for its body. info is apiserver's own reading of r's method
// and URL. The error is meant for the caller: it is 400, 404, 405 or 415, and says what to
// write instead. Read changes neither r nor info.
func Read(r *http.Request, info *request.RequestInfo, kinds Kinds) (*Request, error) {
	header, err := readHeader(r.Header)
	if err != nil {
		return nil, err
	}
	q := &Request{Info: *info, Upgrade: header.Get("Upgrade") != "", release: func() {}}
	if info.IsResourceRequest {
		err = q.readPath(r, kinds)
	} else {
		err = readPlain(r)
	}
	if err != nil {
		return nil, err
	}
	to := *r.URL
	if !q.proxies() {
		if to.RawQuery, err = q.readQuery(r.URL.RawQuery); err != nil {
			return nil, err
		}
		to.Path, to.RawPath = q.path(q.Info.Parts), ""
	}
	if q.Writes() {
		if q.MediaType, err = mediaType(r.Method, r.Header["Content-Type"]); err != nil {
			return nil, err
		}
		header.Set("Content-Type", q.MediaType)
	}
	if slices.Contains([]string{"list", "watch", "deletecollection"}, q.Info.Verb) {
		q.Info.Name, q.Info.FieldSelector, q.Info.LabelSelector = "", "", ""
	}
	q.sent = r.WithContext(r.Context())
	q.sent.URL, q.sent.Header = &to, header
	return q, nil
}

// Writes says whether the request writes a whole object: a server may create it,
// whatever the verb is.
func (q *Request) Writes() bool {
	return q.Info.IsResourceRequest && q.Info.Subresource == "" && slices.Contains([]string{"create", "update", "patch"}, q.Info.Verb)
}

// Applies says whether the request is a server-side apply, which creates a missing object.
func (q *Request) Applies() bool { return q.MediaType == applyYAML || q.MediaType == applyCBOR }

// Resource returns the resource that the request is about.
func (q *Request) Resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: q.Info.APIGroup, Version: q.Info.APIVersion, Resource: q.Info.Resource}
}

// Sent returns the request that may be sent, with a context. If the request writes an object,
// ReadObject must have read it.
func (q *Request) Sent(ctx context.Context) *http.Request { return q.sent.WithContext(ctx) }

// ReadObject reads the body of a request that writes an object, on behalf of a user. It
// refuses a body that is about another object than the path. The caller must call Close once
// it no longer needs the body. The error is meant for the caller of the API.
func (q *Request) ReadObject(bodies *Bodies, user string) error {
	body, release, err := bodies.read(user, q.sent.Body)
	if err != nil {
		return err
	}
	q.release = release
	object, body, err := readObject(q, body)
	if err != nil {
		return err
	}
	q.Object = object
	if q.MediaType == yamlType {
		q.sent.Header.Set("Content-Type", jsonType) // readObject has converted it
	}
	q.sent.Body, q.sent.ContentLength, q.sent.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	q.sent.Trailer = nil
	return nil
}

// Close releases the body's bytes.
func (q *Request) Close() { q.release() }

func bad(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf("this server is guarded, and the gateway passes on only what has one meaning: "+format, args...))
}

func unsupported(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("this server is guarded, and the gateway passes on only what has one meaning: "+format, args...),
	}}
}
