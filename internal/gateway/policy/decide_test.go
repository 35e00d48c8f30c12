package policy

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		status int
		unsent bool
		want   outcome
	}{
		{201, false, landed}, {200, false, landed}, {202, false, landed},
		{400, false, returned}, {403, false, returned}, {404, false, returned}, {409, false, returned},
		{422, false, returned}, {429, false, returned},
		{408, false, unknown}, {499, false, unknown},
		{302, false, unknown},
		{500, false, unknown}, {502, false, unknown}, {503, false, unknown}, {504, false, unknown}, {0, false, unknown},
		{502, true, returned}, {503, true, returned}, {0, true, returned},
	} {
		if got := outcomeOf(test.status, test.unsent); got != test.want {
			t.Errorf("status %d, unsent %v: %v, want %v", test.status, test.unsent, got, test.want)
		}
	}
}

func TestTheServerIsToldWhenToGiveUp(t *testing.T) {
	for in, want := range map[string]string{
		"/x":                              "/x?timeout=30s",
		"/x?fieldManager=a%2fb":           "/x?fieldManager=a%2fb&timeout=30s",
		"/x?timeout=10s":                  "/x?timeout=10s",
		"/x?timeout=1h&a=b":               "/x?a=b&timeout=30s",
		"/x?timeout=nonsense":             "/x?timeout=30s",
		"/x?timeout=-1s":                  "/x?timeout=30s",
		"/x?timeout=20s&timeout=1h&q=%3b": "/x?timeout=20s&timeout=1h&q=%3b", // the first counts, as in Kubernetes
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := withTimeout(u, 30*time.Second+time.Millisecond).String(); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		if u.String() != in {
			t.Errorf("%s was changed", in)
		}
	}
}

func quota(name string, hard map[string]string, more ...func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	for k, v := range hard {
		q.Spec.Hard[corev1.ResourceName(k)] = resource.MustParse(v)
	}
	for _, f := range more {
		f(q)
	}
	return q
}

func TestTheLowestLimitCounts(t *testing.T) {
	all := []*corev1.ResourceQuota{
		quota("a", map[string]string{"count/widgets.a": "7", "pods": "1"}),
		quota("b", map[string]string{"count/widgets.a": "3", "count/gadgets.b": "9"}),
		quota("scoped", map[string]string{"count/widgets.a": "1"}, func(q *corev1.ResourceQuota) {
			q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
		}),
	}
	for r, want := range map[string]limit{
		"widgets.a": {3, "b"}, "gadgets.b": {9, "b"}, "others.c": {Hard: noLimit}, "pods": {Hard: noLimit},
	} {
		if got := limitOf(all, r); got != want {
			t.Errorf("%s: %+v, want %+v", r, got, want)
		}
	}
	if diff := cmp.Diff(map[string]bool{"widgets.a": true, "gadgets.b": true}, limited(all)); diff != "" {
		t.Error(diff)
	}
}

func TestAQuotaShowsWhatIsOursOnly(t *testing.T) {
	q := quota("q", map[string]string{"count/widgets.a": "7", "pods": "5"}, func(q *corev1.ResourceQuota) {
		q.Status.Used = corev1.ResourceList{"pods": resource.MustParse("2"), "count/widgets.a": resource.MustParse("1")}
		q.Status.Hard = corev1.ResourceList{"pods": resource.MustParse("5")}
	})
	before := q.DeepCopy()
	next, changed := statusOf(q, map[string]int64{"widgets.a": 4, "gadgets.b": 1})
	if !changed {
		t.Fatal("nothing has changed")
	}
	want := q.DeepCopy()
	want.Status.Used["count/widgets.a"] = *resource.NewQuantity(4, resource.DecimalSI)
	want.Status.Hard["count/widgets.a"] = resource.MustParse("7")
	if diff := cmp.Diff(want, next); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, q); diff != "" {
		t.Errorf("the cache's own object was changed:\n%s", diff)
	}
	if _, changed := statusOf(next, map[string]int64{"widgets.a": 4}); changed {
		t.Error("it shows that already")
	}
}

func TestFinalizersAreNamesThatKubernetesTakes(t *testing.T) {
	seen := map[string]string{}
	for _, server := range []string{
		"a", "db.example.com", strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 253),
		strings.Repeat("x", 252) + "y", strings.Repeat("a.", 40) + "z",
	} {
		f := FinalizerFor(server)
		if msgs := validation.IsQualifiedName(f); len(msgs) > 0 {
			t.Errorf("%s: %v", f, msgs)
		}
		if other, ok := seen[f]; ok {
			t.Errorf("%s and %s have one finalizer", server, other)
		}
		seen[f] = server
	}
}

func TestKindsAreThoseSentToTheServer(t *testing.T) {
	lists := []*metav1.APIResourceList{
		{GroupVersion: "a/v1", APIResources: []metav1.APIResource{
			{Name: "widgets", Verbs: metav1.Verbs{"list", "delete", "deletecollection"}},
			{Name: "plain", Verbs: metav1.Verbs{"list", "delete"}},
			{Name: "reviews", Verbs: metav1.Verbs{"create"}},
		}},
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "secrets", Verbs: metav1.Verbs{"list", "delete", "deletecollection"}}}},
	}
	known := map[string]string{"widgets.a": "v1", "hidden.a": "v2", "foreign.z": "v1", "lost.b": "v1"}
	of := func(group string) standing { return map[string]standing{"a": sent, "b": unplaced}[group] }
	broken := map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1"}: errors.New("503")}
	got, err := kindsOf(lists, broken, known, of)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range got {
		names = append(names, k.String())
	}
	want := []string{"a/v1, Resource=widgets", "a/v1, Resource=plain", "a/v2, Resource=hidden", "b/v1, Resource=lost"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	for _, group := range []string{"a", "b"} {
		broken[schema.GroupVersion{Group: group, Version: "v3"}] = errors.New("503")
		if _, err := kindsOf(lists, broken, known, of); err == nil || !strings.Contains(err.Error(), "discover "+group+"/v3: 503") {
			t.Errorf("discovery of group %s has failed: %v", group, err)
		}
		delete(broken, schema.GroupVersion{Group: group, Version: "v3"})
	}
	if !got[0].atOnce || got[1].atOnce || got[2].shown {
		t.Errorf("%+v", got)
	}
}

func FuzzParseReservation(f *testing.F) {
	f.Add([]byte(`{"spec":{"server":"s","group":"g","version":"v1","resource":"r","user":{"username":"u"},"timeoutSeconds":5}}`))
	f.Add([]byte(`{"spec":{"server":"s","version":"v1","resource":"r","user":{}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		res, err := parseReservation(body)
		if err != nil {
			return
		}
		if s := res.Spec; s.Server == "" || s.Version == "" || s.Resource == "" || s.TimeoutSeconds < 0 || s.User != nil && s.User.Username == "" {
			t.Errorf("accepted: %+v", s)
		}
	})
}

func TestLimitRanges(t *testing.T) {
	items := []corev1.LimitRangeItem{{
		Type:                 "a/Widget",
		Min:                  corev1.ResourceList{"cpu": resource.MustParse("100m")},
		Max:                  corev1.ResourceList{"cpu": resource.MustParse("2")},
		MaxLimitRequestRatio: corev1.ResourceList{"cpu": resource.MustParse("4")},
	}, {
		Type: "a/Disk",
		Max:  corev1.ResourceList{"storage": resource.MustParse("1Gi")},
	}}
	for name, test := range map[string]struct {
		kind   string
		object string
		want   string
	}{
		"within":         {"Widget", `{requests: {cpu: 500m}, limits: {cpu: 1}}`, ""},
		"too little":     {"Widget", `{requests: {cpu: 50m}, limits: {cpu: 100m}}`, "minimum cpu usage per a/Widget is 100m, but request is 50m"},
		"too much":       {"Widget", `{requests: {cpu: 1}, limits: {cpu: 3}}`, "maximum cpu usage per a/Widget is 2, but limit is 3"},
		"too far":        {"Widget", `{requests: {cpu: 100m}, limits: {cpu: 1}}`, "cpu max limit to request ratio per a/Widget is 4, but the object has limit 1 and request 100m"},
		"nothing said":   {"Widget", `{}`, "minimum cpu usage per a/Widget is 100m.  No request is specified, maximum cpu usage per a/Widget is 2.  No limit is specified, cpu max limit to request ratio per a/Widget is 4, but the object has limit 0 and request 0"},
		"a claim":        {"Disk", `{requests: {storage: 1Gi}}`, ""},
		"a great claim":  {"Disk", `{requests: {storage: 2Gi}}`, "maximum storage usage per a/Disk is 1Gi, but request is 2Gi"},
		"no such limits": {"Other", `{}`, ""},
	} {
		l := newLimitRanges(nil)
		l.cached.Add("ns", items, time.Hour)
		of, err := l.of(t.Context(), "ns", "a", test.kind)
		if err != nil {
			t.Fatal(err)
		}
		var asked canonical.Quantities
		if err := yaml.Unmarshal([]byte(test.object), &asked); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(brokenLimits(of, asked.Requests, asked.Limits), ", "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
