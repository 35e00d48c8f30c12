package namespaces

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestFinalizersAreNamesThatKubernetesTakes(t *testing.T) {
	seen := map[string]string{}
	for _, server := range []string{
		"a", "db.example.com", strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 253),
		strings.Repeat("x", 252) + "y", strings.Repeat("a.", 40) + "z",
	} {
		f := Finalizer(server)
		if msgs := validation.IsQualifiedName(f); len(msgs) > 0 {
			t.Errorf("%s: %v", f, msgs)
		}
		if other, ok := seen[f]; ok {
			t.Errorf("%s and %s have one finalizer", server, other)
		}
		seen[f] = server
	}
}
