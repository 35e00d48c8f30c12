package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/weight"
)

// What an answer, or a watch, may have: OpenAPI v2 of a large cluster has some
// 10 MB.
const (
	mostBytes   = 32 << 20
	mostDecoded = 96 << 20 // as package weight counts it
)

// mostHeld bounds what is decoded of discovery in a run, which is held until it
// ends.
const mostHeld = 64 << 20

const (
	typeJSON  = "application/json"
	typeApply = "application/apply-patch+yaml"
	typeMerge = "application/merge-patch+json"
)

// client asks one server, and believes nothing: it follows no redirect, and
// reads no more than it must.
type client struct {
	http    *http.Client
	base    *url.URL
	timeout time.Duration
	held    weight.Budget // for what is held until the run ends
}

func newClient(config *rest.Config, timeout time.Duration) (*client, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "xb-conformance"
	config.Timeout = 0 // each request has its own
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("understand the server's URL: %w", err)
	}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", base.Redacted(), err)
	}
	// A copy: http.DefaultClient must not change.
	own := *h
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{http: &own, base: base, timeout: timeout, held: weight.Budget{Left: mostHeld}}, nil
}

func (c *client) String() string { return strings.TrimSuffix(c.base.Redacted(), "/") }

// A request is what is asked.
type request struct {
	method      string // empty means GET
	path        string
	query       url.Values
	accept      string // empty means JSON
	contentType string // empty means JSON, if there is a body
	header      http.Header
	body        []byte
}

func (r request) String() string {
	method := r.method
	if method == "" {
		method = http.MethodGet
	}
	if len(r.query) == 0 {
		return method + " " + r.path
	}
	return method + " " + r.path + "?" + r.query.Encode()
}

func (c *client) send(ctx context.Context, r request) (*http.Response, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + r.path
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", r.accept)
	if r.accept == "" {
		req.Header.Set("Accept", typeJSON)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", r.contentType)
		if r.contentType == "" {
			req.Header.Set("Content-Type", typeJSON)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // it repeats the URL
		}
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	return resp, nil
}

// An answer is a response that was read.
type answer struct {
	request request
	status  int
	header  http.Header
	body    []byte
}

// ask sends a request and reads the answer, whatever its status.
func (c *client) ask(ctx context.Context, r request) (*answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no whole answer within %v", c.timeout))
	defer cancel()
	resp, err := c.send(ctx, r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fmt.Errorf("%s: %w", r, cause)
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostBytes+1))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("%s: read the answer: %w", r, err)
	}
	if len(body) > mostBytes {
		return nil, fmt.Errorf("%s: the answer has more than %d MiB", r, mostBytes>>20)
	}
	if weight.Of(body) > mostDecoded {
		return nil, fmt.Errorf("%s: %w", r, weight.ErrTooHeavy)
	}
	return &answer{request: r, status: resp.StatusCode, header: resp.Header, body: body}, nil
}

// get asks for JSON, wants it, and reads it into an object of the type that v
// points to.
func (c *client) get(ctx context.Context, path string, query url.Values, v any) (*answer, error) {
	a, err := c.ask(ctx, request{path: path, query: query})
	if err != nil {
		return nil, err
	}
	return a, a.json(http.StatusOK, v)
}

// hold is get for what is held until the run ends.
func (c *client) hold(ctx context.Context, path string, v any) (*answer, error) {
	a, err := c.ask(ctx, request{path: path})
	if err != nil {
		return nil, err
	}
	if err := c.held.Spend(a.body); err != nil {
		return a, a.errorf("with what was read before: %w", err)
	}
	return a, a.json(http.StatusOK, v)
}

// errorf is an error about this answer.
func (a *answer) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{a.request}, args...)...)
}

// forbidden says that the caller may not ask, or that the server knows no such
// method there: nothing can be said about the rest.
func (a *answer) forbidden() bool {
	return slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed}, a.status)
}

// json wants the status, and JSON that fits what v points to.
func (a *answer) json(status int, v any) error {
	if err := a.is(status); err != nil {
		return err
	}
	if err := a.isJSON(); err != nil {
		return err
	}
	return a.decode(v)
}

// is wants the status; that the caller may not ask is no error of the server's.
func (a *answer) is(status int) error {
	switch {
	case a.status == status:
		return nil
	case a.forbidden():
		return unsaid("%s: answered %d: %s", a.request, a.status, a.excerpt())
	default:
		return a.errorf("want %d, got %d: %s", status, a.status, a.excerpt())
	}
}

func (a *answer) decode(v any) error {
	if err := json.Unmarshal(a.body, v); err != nil {
		return a.errorf("the answer is not the JSON that is wanted: %w", err)
	}
	return nil
}

func (a *answer) isJSON() error {
	got := a.header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(got); err != nil || media != typeJSON {
		return a.errorf("want Content-Type %s, got %q: %s", typeJSON, got, a.excerpt())
	}
	return nil
}

// object reads the answer as an object.
func (a *answer) object(status int) (object, error) {
	var o object
	if err := a.json(status, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, a.errorf("the answer is null")
	}
	return o, nil
}

// refused wants a Status of one of the codes, and of the reason, if there is
// one: the only shape in which Kubernetes clients understand an error.
func (a *answer) refused(reason metav1.StatusReason, codes ...int) error {
	if !slices.Contains(codes, a.status) {
		if a.forbidden() {
			return unsaid("%s: answered %d: %s", a.request, a.status, a.excerpt())
		}
		return a.errorf("want status %s, got %d: %s", eitherOf(codes), a.status, a.excerpt())
	}
	if err := a.isJSON(); err != nil {
		return err
	}
	var s metav1.Status
	if err := json.Unmarshal(a.body, &s); err != nil {
		return a.errorf("the error is not a Status: %w", err)
	}
	switch {
	case s.Kind != "Status" || s.APIVersion != "v1":
		return a.errorf("the error is a %q of %q; want a Status of v1", s.Kind, s.APIVersion)
	case s.Status != metav1.StatusFailure:
		return a.errorf("the Status says status %q; want %q", s.Status, metav1.StatusFailure)
	case int(s.Code) != a.status:
		return a.errorf("the Status says code %d, and the response %d", s.Code, a.status)
	case reason != "" && s.Reason != reason:
		return a.errorf("the Status says reason %q; want %q", s.Reason, reason)
	case s.Message == "":
		return a.errorf("the Status has no message; say what happened and what to do")
	}
	return nil
}

func eitherOf(codes []int) string {
	var words []string
	for _, c := range codes {
		words = append(words, fmt.Sprint(c))
	}
	return strings.Join(words, " or ")
}

// excerpt is the message of a Status, or the beginning of the body, on one line.
func (a *answer) excerpt() string {
	const most = 200
	var s metav1.Status
	if json.Unmarshal(a.body, &s) == nil && s.Kind == "Status" && s.Message != "" {
		return strings.ToValidUTF8(s.Message[:min(len(s.Message), 5*most)], "")
	}
	text := strings.Join(strings.Fields(string(a.body[:min(len(a.body), 4*most)])), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if text == "" {
		return "no body"
	}
	return fmt.Sprintf("%q", text)
}

// An object is any JSON object, with the fields that all have.
type object map[string]any

func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// copy is deep.
func (o object) copy() object { return runtime.DeepCopyJSON(o) }

func (o object) name() string            { return o.text("metadata", "name") }
func (o object) namespace() string       { return o.text("metadata", "namespace") }
func (o object) uid() string             { return o.text("metadata", "uid") }
func (o object) resourceVersion() string { return o.text("metadata", "resourceVersion") }

// items are the objects in a list; an error if it has no such array.
func (o object) items() ([]object, error) {
	list, ok := o["items"].([]any)
	if !ok {
		return nil, fmt.Errorf("items is %s; want an array, empty if there is nothing", kindOf(o["items"]))
	}
	var items []object
	for i, v := range list {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("items[%d] is %s; want an object", i, kindOf(v))
		}
		items = append(items, m)
	}
	return items, nil
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null or not there"
	case string:
		return "a string"
	case float64:
		return "a number"
	case bool:
		return "a boolean"
	case []any:
		return "an array"
	default:
		return "an object"
	}
}
