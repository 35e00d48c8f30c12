package stored

import "testing"

// FuzzParseOpID: whatever is read as an ID is written as it was.
func FuzzParseOpID(f *testing.F) {
	for _, s := range []string{"0-a", "12-b7", "-a", "1-", "01-a", "1", "18446744073709551616-a", "+1-a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseOpID(s); err == nil && id.String() != s {
			t.Errorf("%q is read as %q", s, id)
		}
	})
}

func TestKeysWithASlashDiffer(t *testing.T) {
	if a, b := (Key{"A", "B/C"}), (Key{"A/B", "C"}); a.ClaimName() == b.ClaimName() {
		t.Errorf("%v and %v have one claim", a, b)
	}
}
