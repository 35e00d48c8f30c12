package backend

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// LongRunning says whether a request is long-running, as kube-apiserver has it: a watch, or
// a stream to a running container.
func LongRunning(info *request.RequestInfo) bool {
	switch info.Verb {
	case "watch", "proxy":
		return true
	}
	switch info.Subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return info.IsResourceRequest
	}
	return false
}

// wantsObject says whether the answer to a request must be an object of Kubernetes. It need
// not be one for subresources that Kubernetes does not know, nor for paths outside the API.
func wantsObject(info *request.RequestInfo) bool {
	if info.IsResourceRequest {
		switch info.Subresource {
		case "", "status", "scale", "eviction", "binding", "token", "approval", "finalize", "ephemeralcontainers", "resize":
			return info.Verb != "proxy"
		}
		return false
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(info.Path, "/"), "/")
	switch first {
	case "api", "apis", "version":
		// /openapi is not listed: kube-apiserver serves the root of v3 as text/plain.
		return true
	}
	return false
}

// checkPath refuses a path that the gateway and the server could read differently: such a
// path would be checked as one thing and served as another, or would leave the server's
// base path. After a proxy subresource the path is another program's; there only . and ..
// are refused.
func checkPath(u *url.URL, info *request.RequestInfo) error {
	escaped := u.EscapedPath()
	if !strings.HasPrefix(escaped, "/") {
		return fmt.Errorf("the path %q does not begin with /", shorten(u.Path))
	}
	segments := strings.Split(escaped[1:], "/")
	strict := len(segments)
	if i := proxyRest(segments, info); i > 0 {
		strict = i
		if climbs(strings.Join(segments[i:], "/")) {
			return fmt.Errorf("the path %q has a . or .. in it", shorten(u.Path))
		}
	}
	for i, s := range segments[:strict] {
		if s == "" && i == len(segments)-1 {
			continue // a / at the end
		}
		if err := checkSegment(s); err != nil {
			return fmt.Errorf("the path %q %w", shorten(u.Path), err)
		}
	}
	return nil
}

// proxyRest returns the index of the first segment that a proxy subresource forwards; 0 if
// the path has no proxy subresource.
func proxyRest(segments []string, info *request.RequestInfo) int {
	if !info.IsResourceRequest || info.Subresource != "proxy" {
		return 0
	}
	at := 2 // api/v1
	if segments[0] == "apis" {
		at = 3 // apis/group/version
	}
	if len(segments) > at+2 && segments[at] == "namespaces" && info.Resource != "namespaces" {
		at += 2
	}
	at += 2 // resource/name
	if at >= len(segments) || segments[at] != "proxy" {
		return 0
	}
	return at + 1
}

func checkSegment(escaped string) error {
	s, err := url.PathUnescape(escaped)
	switch {
	case err != nil:
		return fmt.Errorf("has a bad escape")
	case s == "":
		return fmt.Errorf("has an empty segment (//)")
	case climbs(s):
		return fmt.Errorf("has a . or .. in it")
	case strings.ContainsAny(s, `/\%`):
		return fmt.Errorf(`has an escaped /, \ or %% within a segment, which no name in Kubernetes has`)
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("has a control character in it")
	}
	return nil
}

// climbs says whether a path has a segment . or .., also for a reader that unescapes it once
// or twice, takes \ for /, or cuts parameters off at ;.
func climbs(path string) bool {
	for range 3 {
		for s := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
			s, _, _ = strings.Cut(s, ";")
			if s == "." || s == ".." {
				return true
			}
		}
		next, err := url.PathUnescape(path)
		if err != nil || next == path {
			return false
		}
		path = next
	}
	return false
}

// join puts a request's path and query below an endpoint's base URL. The path must have
// passed checkPath. Needless escapes are dropped, so that server and gateway read the same
// letters.
func join(base, in *url.URL, keepEscapes bool) *url.URL {
	out := &url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path + in.Path, RawQuery: in.RawQuery}
	if keepEscapes && in.RawPath != "" {
		out.RawPath = base.EscapedPath() + in.EscapedPath()
	}
	return out
}

// parseBase reads the base URL of an endpoint.
func parseBase(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("parse base URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("base URL %q: want https://host[:port][/path]", raw)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("base URL of host %q has a user, a query or a fragment: give them elsewhere, or not at all", u.Host)
	case climbs(u.EscapedPath()):
		return nil, fmt.Errorf("base URL %q has a . or .. in its path", raw)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	return u, nil
}

// shorten cuts foreign text to the length that a message may have.
func shorten(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
