package canonical

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// headers are the only ones that pass to a guarded server. A server may be configured to take
// a caller, a method or a body from any other header.
var headers = map[string]bool{
	"audit-id": true, "authorization": true, "baggage": true, "cache-control": true, "connection": true, "content-type": true,
	"kubectl-command": true, "kubectl-session": true, "pragma": true, "range": true, "te": true, "traceparent": true,
	"tracestate": true, "upgrade": true, "user-agent": true, "x-request-id": true, "x-stream-protocol-version": true,
}

// overrides are headers that make some servers use another method than the request's.
var overrides = []string{"x-http-method", "x-http-method-override", "x-method-override"}

const bearerProtocol = "base64url.bearer.authorization.k8s.io." // a token as a WebSocket subprotocol

func passes(name string) bool {
	if headers[name] {
		return true
	}
	return slices.ContainsFunc([]string{"accept", "if-", "impersonate-", "sec-websocket-"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// readHeader returns the headers that are sent.
func readHeader(in http.Header) (http.Header, error) {
	out := http.Header{}
	for name, values := range in {
		lower := strings.ToLower(name)
		if slices.Contains(overrides, strings.ReplaceAll(lower, "_", "-")) {
			return nil, bad("the header %s asks for another method than the request has: leave it out", name)
		}
		if passes(lower) {
			out[name] = values
		}
	}
	for _, v := range in["Content-Encoding"] {
		if !strings.EqualFold(strings.TrimSpace(v), "identity") {
			return nil, unsupported("the body is encoded (Content-Encoding %.50q): send it as it is", v)
		}
	}
	tokens := len(in["Authorization"])
	for _, line := range in["Sec-Websocket-Protocol"] {
		tokens += strings.Count(line, bearerProtocol)
	}
	switch {
	case tokens > 1:
		return nil, bad("the request has %d credentials: send one", tokens)
	case len(in["Content-Type"]) > 1:
		return nil, bad("the request has two Content-Type headers: send one")
	case in["Upgrade"] == nil:
		delete(out, "Connection")
	}
	return out, nil
}

// readPlain reads a request outside the API. It refuses writes, and paths that are not plain.
func readPlain(r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: r.URL.Path}, fmt.Sprintf("%.20q", r.Method))
	}
	return checkSegments(strings.Split(strings.Trim(r.URL.Path, "/"), "/"))
}

func checkSegments(parts []string) error {
	for _, s := range parts {
		if s == "" || strings.ContainsFunc(s, notInNames) {
			return bad("the path segment %.100q is empty or has a character that no name in an API path has", s)
		}
	}
	return nil
}

// readPath compares the path with its resource's kind in discovery.
func (q *Request) readPath(r *http.Request, kinds Kinds) error {
	i := &q.Info
	gr := q.Resource().GroupResource()
	if i.Verb == "" {
		return apierrors.NewMethodNotSupported(gr, fmt.Sprintf("%.20q", r.Method))
	}
	// The path after a proxy is not for this server.
	parts, path := i.Parts, strings.TrimRight(r.URL.Path, "/")
	if q.proxies() {
		parts = i.Parts[:3]
		path = path[:min(len(path), len(q.path(parts)))]
	}
	if !q.proxies() && strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f") {
		return bad("the path %.200q has an escaped slash", r.URL.EscapedPath())
	}
	if path != q.path(parts) {
		return bad("the path %.200q is read as %.200q: write that", r.URL.Path, q.path(i.Parts))
	}
	if err := checkSegments(parts); err != nil {
		return err
	}
	kind, err := kinds(q.Resource())
	if err != nil {
		return err
	}
	q.Kind = kind
	named := i.Resource == "namespaces" && !kind.Namespaced // its namespace is its name
	switch {
	case i.Namespace != "" && len(validation.IsDNS1123Label(i.Namespace)) > 0:
		return bad("%.100q is no name of a namespace", i.Namespace)
	case i.Namespace != "" && !kind.Namespaced && !named:
		return bad("%s are not in namespaces: leave /namespaces/%s out of the path", gr, i.Namespace)
	case i.Namespace == "" && kind.Namespaced && i.Verb != "list" && i.Verb != "watch":
		return bad("%s are in namespaces, and the path has none: only a list or a watch may be about all of them", gr)
	case i.Subresource != "" && !slices.Contains(kind.Subresources, i.Subresource):
		return apierrors.NewNotFound(schema.GroupResource{Group: gr.Group, Resource: gr.Resource + "/" + i.Subresource}, i.Name)
	case i.Subresource == "" && (i.Verb == "create" && i.Name != "" || (i.Verb == "update" || i.Verb == "patch") && i.Name == ""):
		return apierrors.NewMethodNotSupported(gr, i.Verb)
	case q.Upgrade && (q.Writes() || i.Verb == "delete" || i.Verb == "deletecollection"):
		return bad("a %s of %s cannot be upgraded to another protocol: leave the Upgrade header out", i.Verb, gr)
	}
	return nil
}

// proxies says whether the rest of the path goes to a program behind the server. Path and
// query are then passed on unchanged.
func (q *Request) proxies() bool { return q.Info.IsResourceRequest && q.Info.Subresource == "proxy" }

// path returns the canonical path of a request, whose resource and subresources are given as
// parts. It differs from the request's path if that has a verb in it (/watch/), or a
// namespace twice.
func (q *Request) path(parts []string) string {
	i := q.Info
	if !i.IsResourceRequest {
		return i.Path
	}
	path := "/" + i.APIPrefix + "/"
	if i.APIPrefix != "api" {
		path += i.APIGroup + "/"
	}
	path += i.APIVersion
	if i.Namespace != "" && !(i.Resource == "namespaces" && i.Name == i.Namespace) {
		path += "/namespaces/" + i.Namespace
	}
	return path + "/" + strings.Join(parts, "/")
}

// notInNames says whether no name in an API path has the rune: neither Kubernetes' names nor
// those of metrics.
func notInNames(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._:~@+=,$!*()'", r))
}

// options are the parameters that Kubernetes knows.
var options = byLower("allowWatchBookmarks", "continue", "dryRun", "fieldManager", "fieldSelector", "fieldValidation", "force",
	"gracePeriodSeconds", "ignoreStoreReadErrorWithClusterBreakingPotential", "labelSelector", "limit", "orphanDependents", "pretty",
	"propagationPolicy", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "shardSelector", "timeout", "timeoutSeconds", "watch")

func byLower(names ...string) map[string]string {
	found := map[string]string{}
	for _, n := range names {
		found[strings.ToLower(n)] = n
	}
	return found
}

// readQuery returns the query that is sent, and sets whether the request is a dry run.
func (q *Request) readQuery(raw string) (string, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "", bad("the query cannot be understood: %v", err)
	}
	for name, given := range values {
		known, ok := options[strings.ToLower(name)]
		switch {
		case name == "_method" || name == "access_token":
			return "", bad("the parameter %s asks for another method or caller than the request has: leave it out", name)
		case ok && known != name:
			return "", bad("the parameter %q is written %s", name, known)
		case ok && len(slices.Compact(slices.Clone(given))) > 1:
			return "", bad("the parameter %s is given twice, with different values: give one", name)
		case ok:
			values[name] = given[:1]
		}
	}
	if !q.Info.IsResourceRequest {
		return values.Encode(), nil
	}
	if values.Has("dryRun") {
		if values.Get("dryRun") != metav1.DryRunAll || q.Info.Verb == "get" || q.Info.Verb == "list" || q.Info.Verb == "watch" {
			return "", bad("dryRun=%.50q of a %s means nothing to Kubernetes: it is dryRun=All, of a change", values.Get("dryRun"), q.Info.Verb)
		}
		q.DryRun = true
	}
	if t := values.Get("timeout"); t != "" {
		if d, err := time.ParseDuration(t); err != nil || d < 0 {
			return "", bad("timeout=%.50q is no duration: write it as 30s", t)
		}
	}
	if q.Info.Verb == "list" || q.Info.Verb == "watch" {
		var o metainternalversion.ListOptions
		if err := metainternalversionscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, &o); err != nil {
			return "", bad("the query cannot be understood: %v", err)
		}
	}
	values.Del("watch")
	if q.Info.Verb == "watch" {
		values.Set("watch", "true")
	}
	return values.Encode(), nil
}

// The media types of bodies that are objects.
const (
	jsonType     = runtime.ContentTypeJSON
	yamlType     = runtime.ContentTypeYAML
	cborType     = runtime.ContentTypeCBOR
	protobufType = runtime.ContentTypeProtobuf
	applyYAML    = string(types.ApplyYAMLPatchType)
	applyCBOR    = string(types.ApplyCBORPatchType)
	jsonPatch    = string(types.JSONPatchType)
	mergePatch   = string(types.MergePatchType)
	strategic    = string(types.StrategicMergePatchType)
)

// mediaType returns the body's media type, which must be one that Kubernetes takes.
// Kubernetes cuts a patch's media type at the semicolon, but parses an object's: only a media
// type that reads the same both ways passes.
func mediaType(method string, given []string) (string, error) {
	known := []string{jsonType, yamlType, cborType, protobufType}
	if method == http.MethodPatch {
		known = []string{jsonPatch, mergePatch, strategic, applyYAML, applyCBOR}
	}
	if len(given) == 0 || given[0] == "" {
		if method == http.MethodPatch {
			return "", unsupported("a patch needs a Content-Type: one of %s", strings.Join(known, ", "))
		}
		return jsonType, nil // as Kubernetes takes it
	}
	parsed, params, err := mime.ParseMediaType(given[0])
	if charset := params["charset"]; err != nil || len(params) > 1 || len(params) == 1 && !strings.EqualFold(charset, "utf-8") || !slices.Contains(known, parsed) {
		return "", unsupported("Content-Type %.100q: send one of %s", given[0], strings.Join(known, ", "))
	}
	return parsed, nil
}
