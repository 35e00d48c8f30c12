package s3bucket

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
)

// refusing opens a store that gives one answer to everything.
func refusing(t *testing.T, status int, code string) *Store {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
	}))
	t.Cleanup(server.Close)
	s, err := Open(t.Context(), Config{
		Bucket: "shared", Prefix: "prod", Endpoint: server.URL, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestDenialNamesTheRight: credentials that lack one right are told which.
func TestDenialNamesTheRight(t *testing.T) {
	s := refusing(t, http.StatusForbidden, "AccessDenied")
	for want, call := range map[string]func(context.Context) error{
		"lack s3:PutObject on s3://shared/prod/journal/1;":                                                                func(ctx context.Context) error { _, err := s.Create(ctx, "journal/1", nil); return err },
		"lack s3:DeleteObject on s3://shared/prod/journal/1;":                                                             func(ctx context.Context) error { return s.Remove(ctx, "journal/1") },
		"lack s3:GetObject on s3://shared/prod/meta.json, or, if there is no such object, s3:ListBucket on the bucket sh": func(ctx context.Context) error { _, _, err := s.Get(ctx, "meta.json", 10); return err },
		"lack s3:ListBucket on the bucket shared for the names that begin with prod/floor/;":                              func(ctx context.Context) error { _, err := s.List(ctx, "floor/", "", ""); return err },
	} {
		if err := call(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "xb aws policy prints") {
			t.Errorf("%v, want it to say %q and to point at xb aws policy", err, want)
		}
	}
}

// TestExpired: credentials that have expired are called that.
func TestExpired(t *testing.T) {
	_, _, err := refusing(t, http.StatusBadRequest, "ExpiredToken").Get(t.Context(), "meta.json", 10)
	if err == nil || !strings.Contains(err.Error(), "(ExpiredToken): they have expired; renew them") {
		t.Errorf("Get = %v", err)
	}
}
