package s3bucket

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/buckettest"
)

var wired = cmpopts.IgnoreFields(Config{}, "Credentials", "Logger")

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]Config{
		"s3://bucket":                                  {Bucket: "bucket"},
		"s3://bucket/":                                 {Bucket: "bucket"},
		"s3://my.bucket/a/b/?region=eu-west-1":         {Bucket: "my.bucket", Prefix: "a/b", Region: "eu-west-1"},
		"s3://bucket/p?endpoint=http://127.0.0.1:9000": {Bucket: "bucket", Prefix: "p", Endpoint: "http://127.0.0.1:9000", PathStyle: true},
		"s3://bucket/p?endpoint=https%3A%2F%2Fs3.example.com&path-style=false": {Bucket: "bucket", Prefix: "p", Endpoint: "https://s3.example.com"},
		"s3://bucket/p?path-style=true&profile=dev":                            {Bucket: "bucket", Prefix: "p", PathStyle: true, Profile: "dev"},
	} {
		got, err := ParseURL(buckettest.URL(t, raw))
		if err != nil {
			t.Errorf("ParseURL(%s) = %v", raw, err)
		}
		if diff := cmp.Diff(want, got, wired); diff != "" {
			t.Errorf("ParseURL(%s) (-want +got):\n%s", raw, diff)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	buckettest.URLsAreRefused(t, ParseURL, map[string]string{
		"http://bucket/p":            `has the scheme "http"`,
		"s3:///p":                    `bucket name "" is not valid`,
		"s3://bucket:80/p":           "is not valid",
		"s3:opaque":                  "malformed",
		"s3://bucket/p#x":            "malformed",
		"s3://bucket/p?a=%zz":        "malformed query",
		"s3://AKIA:hunter2@bucket/p": "carries credentials before the bucket",
		"s3://bucket/p?secret-access-key=hunter2":    `looks like a secret (parameter "secret-access-key")`,
		"s3://bucket/p?X-Amz-Security-Token=hunter2": "looks like a secret",
		"s3://bucket/p?regoin=eu-west-1":             `unknown parameter "regoin"`,
		"s3://bucket/p?region=":                      "must give region once",
		"s3://bucket/p?region=a&region=b":            "must give region once",
		"s3://bucket/p?region=Ireland!":              `region "Ireland!" is not valid`,
		"s3://bucket/p?path-style=perhaps":           `path-style="perhaps"`,
		"s3://bucket/p?endpoint=127.0.0.1:9000":      "endpoint is not valid",
		"s3://bucket/p?endpoint=http://h/path":       "has more than a host",
		"s3://bucket/p?endpoint=http://a:hunter2@h":  "endpoint carries credentials",
		"s3://bucket/a//b":                           `prefix "a//b" is not valid`,
		"s3://bucket/a%20b":                          `prefix "a b" is not valid`,
		"s3://bucket/a/../b":                         `prefix "a/../b" is not valid`,
	})
}

// FuzzParseURL: what is accepted survives being written and read again.
func FuzzParseURL(f *testing.F) {
	buckettest.FuzzURL(f, ParseURL, func(t *testing.T, raw string, cfg Config) {
		written := cfg.URL().String()
		again, err := ParseURL(buckettest.URL(t, written))
		if err != nil {
			t.Fatalf("%q becomes %q: %v", raw, written, err)
		}
		if diff := cmp.Diff(cfg, again, wired); diff != "" {
			t.Errorf("%q becomes %q (-first +second):\n%s", raw, written, diff)
		}
	},
		"s3://bucket/a/b?region=eu-west-1&endpoint=http://127.0.0.1:9000&path-style=false&profile=dev",
		"s3://user:secret@bucket/p?token=x",
		"s3://bucket/%2e%2e/?endpoint=%20",
	)
}
