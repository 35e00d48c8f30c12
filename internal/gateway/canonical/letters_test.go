package canonical

import "testing"

// TestPatchInOtherLetters: some servers find the fields of an object whatever the
// case of their letters, so that a JSON patch can rename an object by such a path.
func TestPatchInOtherLetters(t *testing.T) {
	for _, path := range []string{"/metadata/name", "/metadata/Name", "/METADATA/name", "/Metadata", "/Kind", "/apiversion"} {
		for _, operation := range []string{
			`{"op":"add","path":"` + path + `","value":"x"}`,
			`{"op":"copy","from":"/spec/x","path":"` + path + `"}`,
			`{"op":"move","from":"` + path + `","path":"/spec/x"}`,
		} {
			if err := checkOperations([]byte("[" + operation + "]")); err == nil {
				t.Errorf("%s passes", operation)
			}
		}
	}
}
