package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
)

// An Answer is a response that was read whole.
type Answer struct {
	request string // METHOD PATH?QUERY
	Status  int
	Header  http.Header
	Body    []byte
}

// Request is what was asked: METHOD PATH?QUERY.
func (a *Answer) Request() string { return a.request }

// Errorf returns an error about this answer.
func (a *Answer) Errorf(format string, args ...any) error { return errorf(a.request, format, args) }

// Forbidden reports whether the caller may not ask, or the server knows no such
// method there. Such an answer says nothing about conventions.
func (a *Answer) Forbidden() bool {
	return slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed}, a.Status)
}

func (a *Answer) skipped() error {
	return check.Skipf("%s: answered %d: %s", a.request, a.Status, a.Excerpt())
}

// Is wants the status. If the caller may not ask, the error is a check.Skipped.
func (a *Answer) Is(status int) error {
	switch {
	case a.Status == status:
		return nil
	case a.Forbidden():
		return a.skipped()
	default:
		return a.Errorf("want %d, got %d: %s", status, a.Status, a.Excerpt())
	}
}

// JSON wants the status, and JSON that fits what v points to.
func (a *Answer) JSON(status int, v any) error {
	if err := a.Is(status); err != nil {
		return err
	}
	if err := a.isJSON(); err != nil {
		return err
	}
	return a.decode(v)
}

// Document wants 200, and JSON that fits what v points to, whatever its
// Content-Type: kube-apiserver itself gives OpenAPI as text/plain.
func (a *Answer) Document(v any) error {
	if err := a.Is(http.StatusOK); err != nil {
		return err
	}
	return a.decode(v)
}

// Object wants the status, and reads the answer as an object.
func (a *Answer) Object(status int) (Object, error) {
	var o Object
	if err := a.JSON(status, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, a.Errorf("the answer is null")
	}
	return o, nil
}

func (a *Answer) decode(v any) error {
	if err := json.Unmarshal(a.Body, v); err != nil {
		return a.Errorf("the answer is not the JSON that is wanted: %w", err)
	}
	return nil
}

func (a *Answer) isJSON() error {
	got := a.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(got); err != nil || media != JSON {
		return a.Errorf("want Content-Type %s, got %q: %s", JSON, got, a.Excerpt())
	}
	return nil
}

// Refused gets r and wants the answer to be refused as Answer.Refused does.
func (c *Client) Refused(ctx context.Context, r Request, reason metav1.StatusReason, codes ...int) error {
	a, err := c.Get(ctx, r)
	if err != nil {
		return err
	}
	return a.Refused(reason, codes...)
}

// Refused wants a Status of one of the codes, and of the reason unless that is
// empty: Kubernetes clients understand errors in no other shape.
func (a *Answer) Refused(reason metav1.StatusReason, codes ...int) error {
	if !slices.Contains(codes, a.Status) {
		if a.Forbidden() {
			return a.skipped()
		}
		return a.Errorf("want status %s, got %d: %s", eitherOf(codes), a.Status, a.Excerpt())
	}
	if err := a.isJSON(); err != nil {
		return err
	}
	var s metav1.Status
	if err := json.Unmarshal(a.Body, &s); err != nil {
		return a.Errorf("the error is not a Status: %w", err)
	}
	switch {
	case s.Kind != "Status" || s.APIVersion != "v1":
		return a.Errorf("the error is a %q of %q; want a Status of v1", s.Kind, s.APIVersion)
	case s.Status != metav1.StatusFailure:
		return a.Errorf("the Status says status %q; want %q", s.Status, metav1.StatusFailure)
	case int(s.Code) != a.Status:
		return a.Errorf("the Status says code %d, and the response %d", s.Code, a.Status)
	case reason != "" && s.Reason != reason:
		return a.Errorf("the Status says reason %q; want %q", s.Reason, reason)
	case s.Message == "":
		return a.Errorf("the Status has no message; say what happened and what to do")
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

// Excerpt is the message of a Status, or the beginning of the body, on one line.
func (a *Answer) Excerpt() string {
	const most = 200
	var s metav1.Status
	if json.Unmarshal(a.Body, &s) == nil && s.Kind == "Status" && s.Message != "" {
		return strings.ToValidUTF8(s.Message[:min(len(s.Message), 5*most)], "")
	}
	text := strings.Join(strings.Fields(string(a.Body[:min(len(a.Body), 4*most)])), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if text == "" {
		return "no body"
	}
	return fmt.Sprintf("%q", text)
}
