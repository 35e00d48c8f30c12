// Package gcstest is Google Cloud Storage in memory, for tests: fake-gcs-server, in the
// same process. It knows no journal.
package gcstest

import (
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// Store is a store with one empty bucket, until the test ends.
func Store(t testing.TB, bucket string) http.Handler {
	t.Helper()
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, Writer: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket})
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host },
		Transport: server.HTTPClient().Transport, // in this process
		ErrorLog:  log.New(io.Discard, "", 0),    // clients that are gone
	}
}
