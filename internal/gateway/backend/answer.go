package backend

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// judge checks an answer before any of it goes to the caller. It returns a fault if the
// answer must not go on; the caller of judge then closes the body. It reads at most the
// first bytes of a body, and puts them back.
func judge(resp *http.Response, e errand) *fault {
	switch code := resp.StatusCode; {
	case code == http.StatusSwitchingProtocols:
		// A switch that nobody asked for would give the server the caller's connection,
		// with all that the caller later sends on it to other servers.
		if e.upgrade == "" || !strings.EqualFold(resp.Header.Get("Upgrade"), e.upgrade) {
			return &fault{http.StatusBadGateway, NotKubernetes, "switched to a protocol that the caller did not ask for"}
		}
		return nil
	case code < 200:
		return &fault{http.StatusBadGateway, NotKubernetes, fmt.Sprintf("answered with status %d", code)}
	case code >= 300 && code < 400 && code != http.StatusNotModified:
		return &fault{http.StatusBadGateway, Redirect, fmt.Sprintf(
			"answered with a redirect (%d) to %q, which the gateway neither follows nor passes on: register the server by the address that serves its API",
			code, destination(resp.Header.Get("Location")))}
	case code == http.StatusUnauthorized && !e.passThrough:
		return &fault{http.StatusBadGateway, BadCredentials,
			"does not accept the gateway's own credentials (401): renew what identity.credentials names, or have the server accept it"}
	case !e.object || resp.Request.Method == http.MethodHead:
		return nil
	case code == http.StatusNoContent, code == http.StatusResetContent, code == http.StatusNotModified:
		return nil
	}
	return judgeObject(resp, e)
}

// judgeObject is judge for answers that must be objects of Kubernetes.
func judgeObject(resp *http.Response, e errand) *fault {
	kind := encodingOf(resp.Header.Get("Content-Type"))
	if resp.StatusCode >= 400 {
		if kind == "" {
			text := printable(firstBytes(resp, 512))
			return &fault{resp.StatusCode, NotKubernetes, fmt.Sprintf("answered %s with %s, not with a Status of Kubernetes: %q",
				http.StatusText(resp.StatusCode), typeOf(resp), text)}
		}
		return nil
	}
	if kind == "" {
		return &fault{http.StatusBadGateway, NotKubernetes, fmt.Sprintf("answered %d with %s where an object of Kubernetes was asked for: "+
			"is its URL that of a Kubernetes API?", resp.StatusCode, typeOf(resp))}
	}
	if e.longRunning || kind == "any" {
		return nil // the first event may take hours
	}
	start, err := peek(resp, 8)
	if err != nil {
		f := explain(err, resp.Request.URL.Host, true, isRead(resp.Request.Method), time.Time{})
		return &f
	}
	if !plausible(start, kind, resp.Header.Get("Content-Encoding")) {
		return &fault{http.StatusBadGateway, NotKubernetes, fmt.Sprintf("answered %d with what is said to be %s and begins %q",
			resp.StatusCode, typeOf(resp), printable(start))}
	}
	return nil
}

// encodingOf names the encoding of objects that a media type stands for: json,
// protobuf, cbor or any, or nothing if it stands for none.
func encodingOf(contentType string) string {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		// Kubernetes itself sends application/com.github.proto-openapi.spec.v2@v1.0+protobuf.
		media, _, _ = strings.Cut(strings.ToLower(contentType), ";")
		media = strings.TrimSpace(media)
	}
	sub, ok := strings.CutPrefix(media, "application/")
	switch {
	case !ok:
		return ""
	case sub == "json", strings.HasSuffix(sub, "+json"):
		return "json"
	case sub == "vnd.kubernetes.protobuf":
		return "protobuf"
	case sub == "cbor", sub == "cbor-seq":
		return "cbor"
	case sub == "yaml", strings.HasSuffix(sub, "protobuf"):
		return "any"
	}
	return ""
}

// plausible says whether a body that begins like this can be in an encoding.
func plausible(start []byte, kind, compression string) bool {
	switch compression {
	case "", "identity":
	case "gzip":
		return bytes.HasPrefix(start, []byte{0x1f, 0x8b})
	default:
		return len(start) > 0
	}
	switch kind {
	case "json":
		start = bytes.TrimLeft(start, " \t\r\n")
		return len(start) > 0 && (start[0] == '{' || start[0] == '[')
	case "protobuf":
		return bytes.HasPrefix(start, []byte("k8s\x00"))
	case "cbor":
		return len(start) > 0 && start[0]>>5 >= 5 // a map, or tagged
	}
	return len(start) > 0
}

// peek reads up to n bytes of a body and puts them back. A shorter body is no error.
func peek(resp *http.Response, n int) ([]byte, error) {
	buf := make([]byte, n)
	got, err := io.ReadFull(resp.Body, buf)
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		err = nil
	}
	buf = buf[:got]
	resp.Body = &unread{resp.Body, buf}
	return buf, err
}

// firstBytes is peek for a message, which ignores errors.
func firstBytes(resp *http.Response, n int) []byte {
	b, _ := peek(resp, n)
	return b
}

// unread is a body with its first bytes put back. One Read returns them with the bytes that
// follow, so that a small answer takes one write.
type unread struct {
	io.ReadCloser
	first []byte
}

func (u *unread) Read(p []byte) (int, error) {
	n := copy(p, u.first)
	u.first = u.first[n:]
	if n == len(p) {
		return n, nil
	}
	more, err := u.ReadCloser.Read(p[n:])
	return n + more, err
}

// typeOf names the media type of a body, for a message.
func typeOf(resp *http.Response) string {
	t := resp.Header.Get("Content-Type")
	switch {
	case t == "" && resp.ContentLength == 0:
		return "nothing"
	case t == "":
		return "a body of no type"
	case strings.HasPrefix(t, "text/html"):
		return "an HTML page"
	}
	return shorten(strings.ToValidUTF8(t, "?"))
}

// printable returns the part of a body that may be in a message.
func printable(b []byte) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '�' {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(shorten(string(b)), "?")))
}

// destination returns where a redirect leads, without its user and query, which may be
// secret.
func destination(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return ""
	}
	return shorten((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
}

// dropped are the headers of an answer that speak for the gateway's address, which a server
// does not know, or tell the client where to go or whom to trust.
var dropped = map[string]bool{
	"Set-Cookie": true, "Set-Cookie2": true, "Www-Authenticate": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
	"Authentication-Info": true, "Proxy-Authentication-Info": true, "Authorization": true, "Cookie": true,
	"Strict-Transport-Security": true, "Public-Key-Pins": true, "Public-Key-Pins-Report-Only": true, "Expect-Ct": true,
	"Alt-Svc": true, "Alt-Used": true, "Refresh": true, "Location": true, "Content-Location": true, "Link": true,
	"Clear-Site-Data": true, "Service-Worker-Allowed": true, "Report-To": true, "Reporting-Endpoints": true, "Nel": true,
	"Access-Control-Allow-Origin": true, "Access-Control-Allow-Credentials": true, "Access-Control-Allow-Headers": true,
	"Access-Control-Allow-Methods": true, "Access-Control-Expose-Headers": true, "Access-Control-Max-Age": true,
	"Server": true, "X-Powered-By": true, "X-Sendfile": true,
}

// cleanAnswer removes the headers of an answer that must not reach the caller.
func cleanAnswer(h http.Header) {
	for name := range h {
		n := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		if dropped[http.CanonicalHeaderKey(n)] || hasAnyPrefix(n, "x-accel-", "x-remote-", "impersonate-", "x-forwarded-", "proxy-") {
			delete(h, name)
		}
	}
}
