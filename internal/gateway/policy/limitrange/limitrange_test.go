package limitrange

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/internal/gateway/canonical"
)

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
		l := New(nil)
		l.cached.Add("ns", items, time.Hour)
		of, err := l.Of(t.Context(), "ns", "a", test.kind)
		if err != nil {
			t.Fatal(err)
		}
		var asked canonical.Quantities
		if err := yaml.Unmarshal([]byte(test.object), &asked); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(Broken(of, asked.Requests, asked.Limits), ", "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
