package aggregation

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func TestAddressOf(t *testing.T) {
	for raw, want := range map[string]string{
		"https://example.com":                "https://example.com",
		"https://example.com/":               "https://example.com",
		"https://[::1]:8443":                 "https://[::1]:8443",
		"":                                   "",
		"http://example.com":                 "",
		"https://":                           "",
		"https://:8443":                      "",
		"https://user:secret@example.com":    "",
		"https://example.com/path":           "",
		"https://example.com?a=b":            "",
		"https://example.com#a":              "",
		"example.com:443":                    "",
		"https://example.com:port":           "",
		"unix:///run/sock":                   "",
		"https://exa\nmple.com":              "",
		" https://example.com":               "",
		"https://example.com/../../anything": "",
	} {
		u, err := addressOf(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AddressAnnotation: raw}}})
		switch {
		case want == "" && err == nil:
			t.Errorf("%q is taken for %v", raw, u)
		case want != "" && (err != nil || u.String() != want):
			t.Errorf("%q: %v, %v", raw, u, err)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%q: the error repeats it: %v", raw, err)
		}
	}
}
