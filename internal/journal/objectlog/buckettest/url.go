package buckettest

import (
	"net/url"
	"strings"
	"testing"
)

// Secret stands for a secret in the URLs of tests. No error may repeat it.
const Secret = "hunter2"

// URL is raw, which must be one.
func URL(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// URLsAreRefused checks that a driver's parse refuses the URLs, each with an error that says
// the words beside it, in one line and without Secret.
func URLsAreRefused[Config any](t *testing.T, parse func(*url.URL) (Config, error), words map[string]string) {
	t.Helper()
	for raw, want := range words {
		_, err := parse(URL(t, raw))
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), Secret) {
			t.Errorf("ParseURL(%s) = %v, want it to say %q in one line, without a secret", raw, err, want)
		}
	}
}

// FuzzURL has the fuzzer look for URLs that a driver's parse accepts although they carry
// credentials, or that fail check.
func FuzzURL[Config any](f *testing.F, parse func(*url.URL) (Config, error), check func(t *testing.T, raw string, cfg Config), seeds ...string) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		cfg, err := parse(u)
		if err != nil {
			return
		}
		if u.User != nil {
			t.Errorf("%q is accepted with credentials", raw)
		}
		check(t, raw, cfg)
	})
}
