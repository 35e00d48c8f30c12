package servicesync

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

func keyOf(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

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
		got := explain(fmt.Errorf("list: %w", err), "peer b")
		if !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "\n") {
			t.Errorf("%v is explained as %q; want %q", err, got, want)
		}
	}
	if got := explain(context.Canceled, "peer b"); got != "" {
		t.Errorf("an end is explained as %q", got)
	}
}

// TestCovers: definitions are brought up to date, and those of a newer xb are not
// taken back.
func TestCovers(t *testing.T) {
	for _, doc := range v1alpha1.CRDs() {
		ours := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(doc, ours); err != nil {
			t.Fatal(err)
		}
		if formatOf(ours) != int(v1alpha1.FormatVersion) {
			t.Errorf("%s is said to be of format %d", ours.Name, formatOf(ours))
		}
		other := ours.DeepCopy()
		if !covers(other, ours) {
			t.Errorf("%s does not cover itself", ours.Name)
		}
		delete(other.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties, "spec")
		if covers(other, ours) {
			t.Errorf("%s covers what it has no fields of", ours.Name)
		}
		other.Annotations[v1alpha1.AnnotationFormat] = fmt.Sprint(v1alpha1.FormatVersion + 1)
		if !covers(other, ours) {
			t.Errorf("%s of a newer xb is taken back", ours.Name)
		}
	}
}

func TestMerge(t *testing.T) {
	parse := func(all ...string) (out []netip.Prefix) {
		for _, s := range all {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	for _, test := range []struct{ in, want []netip.Prefix }{
		{nil, nil},
		{parse("10.0.1.0/24", "10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24"), parse("10.0.0.0/22")},
		{parse("10.0.1.0/24", "10.0.2.0/24"), parse("10.0.1.0/24", "10.0.2.0/24")}, // not of one parent
		{parse("10.0.0.0/16", "10.0.3.0/24", "10.0.0.0/16"), parse("10.0.0.0/16")},
		{parse("fd00::/65", "fd00:0:0:0:8000::/65", "10.0.0.0/8"), parse("10.0.0.0/8", "fd00::/64")},
	} {
		if diff := cmp.Diff(fmt.Sprint(test.want), fmt.Sprint(merge(test.in))); diff != "" {
			t.Errorf("merge(%v): %s", test.in, diff)
		}
	}
}

// A restart is no silence of the peer's; one that was given up stays so.
func TestRecall(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	lease := 40 * time.Second
	for _, test := range []struct {
		name  string
		heard time.Duration // before began
		state model.Health
		after time.Duration // of reading
		want  model.Health
	}{
		{"heard just now", time.Second, model.Live, 0, model.Live},
		{"long away", time.Hour, model.Live, 0, model.Live},
		{"long away, and silent for more than a renewal", time.Hour, model.Live, 16 * time.Second, model.Stale},
		{"long away, and silent", time.Hour, model.Live, 36 * time.Second, model.Expired},
		{"given up", time.Hour, model.Expired, 0, model.Expired},
	} {
		m := recall(v1alpha1.PeerStatus{
			Cluster: "b", Heard: &metav1.MicroTime{Time: began.Add(-test.heard)}, DurationSeconds: int32(lease.Seconds()), State: string(test.state),
		}, began)
		got, _ := model.Peering{Heard: m.heard, Duration: m.duration}.Health(began.Add(test.after))
		if got != test.want {
			t.Errorf("%s: %s; want %s", test.name, got, test.want)
		}
	}
	// What was never reached is no sooner given up, and no later, by a restart.
	for state, want := range map[string]model.Health{unknown: model.Live, string(model.Expired): model.Expired} {
		m := recall(v1alpha1.PeerStatus{Cluster: "b", State: state}, began)
		got, _ := m.peering().Health(began)
		if said := statusOf("b", m, got); got != want || said.State != state || said.Heard != nil {
			t.Errorf("never reached and %s, it is %s and said to be %+v; want %s", state, got, said, want)
		}
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
	patch, err := difference(before, after)
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

// News are written; that a peer lives is, once a renewal.
func TestNews(t *testing.T) {
	at := func(s int64) *metav1.MicroTime { return &metav1.MicroTime{Time: time.Unix(s, 0)} }
	before := v1alpha1.ClusterLeaseStatus{Peers: []v1alpha1.PeerStatus{{Cluster: "b", State: "Live", Heard: at(100)}}}
	for name, test := range map[string]struct {
		now  v1alpha1.PeerStatus
		want bool
	}{
		"the same":      {v1alpha1.PeerStatus{Cluster: "b", State: "Live", Heard: at(100)}, false},
		"heard just":    {v1alpha1.PeerStatus{Cluster: "b", State: "Live", Heard: at(105)}, false},
		"heard again":   {v1alpha1.PeerStatus{Cluster: "b", State: "Live", Heard: at(110)}, true},
		"stale":         {v1alpha1.PeerStatus{Cluster: "b", State: "Stale", Heard: at(100)}, true},
		"has a message": {v1alpha1.PeerStatus{Cluster: "b", State: "Live", Heard: at(100), Message: "x"}, true},
	} {
		if got := news(before, v1alpha1.ClusterLeaseStatus{Peers: []v1alpha1.PeerStatus{test.now}}, 10*time.Second); got != test.want {
			t.Errorf("%s: %v; want %v", name, got, test.want)
		}
	}
}

// A peer speaks for itself only, whatever its objects say.
func TestPeerSpeaksForItself(t *testing.T) {
	b := &peer{id: "b"}
	web := v1alpha1.ServiceReference{Namespace: "shop", Name: "web"}
	if got := b.trusted("c", web); got != nil {
		t.Errorf("b is believed to speak for c about %v", got)
	}
	if got := b.trusted("b", web); len(got) != 1 || got[0] != keyOf("shop", "web") {
		t.Errorf("b is not believed: %v", got)
	}
}
