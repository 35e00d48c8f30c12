package preflight

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
)

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
