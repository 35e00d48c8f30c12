package access

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

func TestExplain(t *testing.T) {
	group := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "publishedservices"}
	for want, err := range map[string]error{
		"":                         apierrors.NewResourceExpired("too old"),
		"peer b refuses the cred":  apierrors.NewUnauthorized("Unauthorized"),
		"peer b denies a right":    apierrors.NewForbidden(group, "", errors.New(`User "peer" cannot list`)),
		"peer b does not serve se": apierrors.NewNotFound(group, ""),
		"peer b shows a cert":      &url.Error{Op: "Get", Err: x509.UnknownAuthorityError{}},
		"peer b cannot be reached": &url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}},
		"peer b refuses the clien": &url.Error{Op: "Get", Err: &net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")}},
		"peer b has other Custom":  apierrors.NewBadRequest(`strict decoding error: unknown field "spec.slices"`),
		"peer b is not well":       apierrors.NewTooManyRequests("later", 1),
		"peer b cannot be read":    errors.New("something\nwith lines"),
	} {
		got := Explain(fmt.Errorf("list: %w", err), "peer b")
		if !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "\n") {
			t.Errorf("%v is explained as %q; want %q", err, got, want)
		}
	}
	if got := Explain(context.Canceled, "peer b"); got != "" {
		t.Errorf("an end is explained as %q", got)
	}
}

// What is sent of an object that is not ours is the difference, and what it
// was decided on.
func TestDifference(t *testing.T) {
	before := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: "7", UID: "u", Labels: map[string]string{"theirs": "1"}},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}}
	after := before.DeepCopy()
	after.Spec.Selector = nil
	after.Annotations = map[string]string{"saved": "1"}
	patch, err := Difference(before, after)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(patch, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"saved": "1"}, "resourceVersion": "7", "uid": "u"},
		"spec":     map[string]any{"selector": nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
