package bucket

import (
	"fmt"
	"mime"
	"net/http"
)

// strangerError is an answer that no object store gives: something else is at
// the endpoint, or stands between. It says nothing about objects, and least of
// all that one was stored.
type strangerError struct{ what string }

func (e *strangerError) Error() string { return e.what }

// onlyStores makes an error of a success that no object store answers with.
type onlyStores struct{ http.RoundTripper }

func (t onlyStores) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if what := stranger(r, resp); what != "" {
		resp.Body.Close()
		return nil, &strangerError{what}
	}
	return resp, nil
}

// stranger says what is wrong with a success, and "" if nothing is. A page with
// 200 is what proxies, captive portals and sign-in pages answer to everything.
func stranger(r *http.Request, resp *http.Response) string {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return ""
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/html" {
		return "it answers with a web page where objects should be"
	}
	ofObject := r.Method == http.MethodPut || r.Method == http.MethodGet && !r.URL.Query().Has("list-type")
	if ofObject && resp.Header.Get("ETag") == "" {
		return fmt.Sprintf("it answers %d without an ETag", resp.StatusCode)
	}
	return ""
}
