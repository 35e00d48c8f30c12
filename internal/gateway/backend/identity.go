package backend

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/gateway/call"
)

const (
	impersonateUser  = "Impersonate-User"
	impersonateGroup = "Impersonate-Group"
	impersonateUID   = "Impersonate-Uid"
	impersonateExtra = "Impersonate-Extra-"

	remoteUser  = "X-Remote-User"
	remoteGroup = "X-Remote-Group"
	remoteUID   = "X-Remote-Uid"
	remoteExtra = "X-Remote-Extra-"
)

// checkCaller refuses a caller whom a server in this mode would take for somebody else, or
// for nobody. presented are the credentials that the caller sent.
func checkCaller(mode v1alpha1.IdentityMode, u user.Info, presented call.Credentials) *fault {
	if mode == v1alpha1.PassThrough {
		switch {
		case len(presented.Authorization) > 1:
			return &fault{http.StatusBadRequest, Refused, "gets no request with two Authorization headers: send one"}
		case presented.Certificate && presented.HasToken():
			return &fault{http.StatusUnauthorized, Refused, "takes the caller's own credentials, and these came twice, as a client certificate and as a token: " +
				"send the token without the certificate, so that the gateway and the server see the same user"}
		case presented.Certificate:
			return &fault{http.StatusUnauthorized, Refused, "takes the caller's own credentials, and a client certificate cannot be passed on: " +
				"use a bearer token (kubectl --token, or a kubeconfig user with token or exec), go to the server directly, " +
				"or have its administrator set identity.mode to Impersonate or FrontProxy"}
		}
		return nil
	}
	if u == nil || u.GetName() == "" {
		return &fault{http.StatusUnauthorized, Refused, "is told who the caller is, and the gateway does not know: authenticate to the gateway"}
	}
	if u.GetName() == user.Anonymous && (!slices.Contains(u.GetGroups(), user.AllUnauthenticated) || slices.Contains(u.GetGroups(), user.AllAuthenticated)) {
		return &fault{http.StatusForbidden, Refused, fmt.Sprintf("would take an authenticated user named %q for an anonymous one: use another name", user.Anonymous)}
	}
	for _, v := range slices.Concat([]string{u.GetName(), u.GetUID()}, u.GetGroups()) {
		if !survives(v) {
			return lossy("a name, uid or group")
		}
	}
	for _, values := range u.GetExtra() {
		if !slices.ContainsFunc(values, func(v string) bool { return !survives(v) }) {
			continue
		}
		return lossy("an extra")
	}
	return nil
}

func lossy(what string) *fault {
	return &fault{http.StatusForbidden, Refused, "would see another user: the caller has " + what +
		" that begins or ends with a space, or has a control character in it, which a header does not keep"}
}

// survives says whether a header's value arrives as it was sent.
func survives(v string) bool {
	return textproto.TrimString(v) == v && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// identify turns the headers of a caller's request into those that the server gets. It
// removes every header that speaks of identity, and adds the user whom the gateway knows,
// or in PassThrough mode the caller's own token. checkCaller must have passed.
func identify(h http.Header, mode v1alpha1.IdentityMode, u user.Info, presented call.Credentials, gateway Secret) {
	for name := range h {
		if !passes(name, mode) {
			delete(h, name)
		}
	}
	if mode == v1alpha1.PassThrough {
		if len(presented.Authorization) == 1 {
			h["Authorization"] = presented.Authorization
		}
		if len(presented.Protocols) > 0 && h["Upgrade"] != nil {
			h["Sec-Websocket-Protocol"] = presented.Protocols
		}
		return
	}
	dropTokenProtocol(h)
	switch mode {
	case v1alpha1.FrontProxy:
		describe(h, u, remoteUser, remoteUID, remoteGroup, remoteExtra)
	default:
		gateway.authorize(h)
		describe(h, u, impersonateUser, impersonateUID, impersonateGroup, impersonateExtra)
	}
}

// Self is the user name of the gateway's own requests in FrontProxy mode, if it has no
// token at the server. It may read what every authenticated user may; any other right the
// server has to grant it.
const Self = "system:xbernetes:gateway"

// identifySelf adds the headers that identify the gateway itself.
func (b *Backend) identifySelf(h http.Header) {
	secret := b.credentials.Current()
	secret.authorize(h)
	if b.mode == v1alpha1.FrontProxy && secret.token == "" {
		describe(h, &user.DefaultInfo{Name: Self, Groups: []string{user.AllAuthenticated}}, remoteUser, remoteUID, remoteGroup, remoteExtra)
	}
}

// describe adds the headers that name a user, in one of the two sets of headers.
func describe(h http.Header, u user.Info, name, uid, group, extra string) {
	h[name] = []string{u.GetName()}
	if u.GetUID() != "" {
		h[uid] = []string{u.GetUID()}
	}
	for _, g := range u.GetGroups() {
		if g != "" {
			h.Add(group, g)
		}
	}
	for k, values := range u.GetExtra() {
		for _, v := range values {
			h.Add(extra+escapeKey(k), v)
		}
	}
}

// escapeKey encodes the key of an extra as part of a header's name. Such names lose their
// case on the way, so every character but a digit, a lower-case letter or another token
// character is escaped by %, as Kubernetes reads it.
func escapeKey(key string) string {
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}

// passes says whether a header that the caller sent goes on to the server.
//
// If the gateway vouches for the caller (Impersonate, FrontProxy), only headers pass that
// are known to say nothing about identity, because a server may trust any header that it
// was configured with. With the caller's own credentials, every header passes but those
// that only proxies may set.
func passes(name string, mode v1alpha1.IdentityMode) bool {
	// Servers have taken X_Remote_User for X-Remote-User.
	n := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	if mode != v1alpha1.PassThrough {
		return n == strings.ToLower(name) && (harmless[n] || hasAnyPrefix(n, "accept", "content-", "if-", "sec-websocket-", "kubectl-"))
	}
	if hasAnyPrefix(n, "x-remote-", "x-forwarded-", "proxy-", "x-original-", "x-envoy-", "x-ssl-", "ssl-client-") {
		return false
	}
	if strings.HasPrefix(n, "impersonate-") {
		return n == strings.ToLower(name) // the server decides about impersonation
	}
	return n != "authorization" && !forProxies[n] // identify sets Authorization
}

// harmless are the headers that pass if the gateway vouches for the caller. The reverse
// proxy sets Upgrade and Connection itself.
var harmless = map[string]bool{
	"audit-id": true, "baggage": true, "cache-control": true, "connection": true, "pragma": true, "range": true, "te": true,
	"traceparent": true, "tracestate": true, "upgrade": true, "user-agent": true, "x-request-id": true,
	"x-stream-protocol-version": true,
}

// forProxies are headers that never pass from a caller: cookies of the gateway's origin;
// addresses, methods and URLs other than the checked ones; and headers that make Go's
// client repeat a write.
var forProxies = map[string]bool{
	"cookie": true, "cookie2": true, "expect": true, "forwarded": true, "http2-settings": true, "idempotency-key": true,
	"x-idempotency-key": true, "x-client-ip": true, "x-real-ip": true, "true-client-ip": true, "x-rewrite-url": true,
	"x-http-method": true, "x-http-method-override": true, "x-method-override": true,
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// dropTokenProtocol removes a token from the WebSocket subprotocols.
func dropTokenProtocol(h http.Header) {
	const name = "Sec-Websocket-Protocol"
	if h[name] == nil {
		return
	}
	var keep []string
	for _, line := range h[name] {
		for p := range strings.SplitSeq(line, ",") {
			if p = strings.TrimSpace(p); p != "" && !strings.HasPrefix(p, call.BearerProtocol) {
				keep = append(keep, p)
			}
		}
	}
	delete(h, name)
	if len(keep) > 0 {
		h[name] = []string{strings.Join(keep, ", ")}
	}
}

// Impersonates says whether a request's headers ask to impersonate somebody.
func Impersonates(h http.Header) bool {
	for name := range h {
		if asksForUser(name) {
			return true
		}
	}
	return false
}

// asksForUser says whether a header is used to ask for impersonation.
func asksForUser(header string) bool {
	return strings.HasPrefix(strings.ToLower(header), "impersonate-")
}

// checkHop refuses Connection and Upgrade headers that could harm further on: headers
// declared hop-by-hop so that a proxy drops them, and switches to a protocol that would
// tunnel requests past the gateway.
func checkHop(r *http.Request) error {
	for _, line := range r.Header["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			switch t := strings.ToLower(strings.TrimSpace(token)); t {
			case "", "close", "keep-alive", "upgrade", "te":
			default:
				return fmt.Errorf("the Connection header names %q, which is no property of a connection: leave it out", shorten(t))
			}
		}
	}
	if !Upgrades(r) {
		return nil
	}
	up := r.Header["Upgrade"]
	if len(up) != 1 || !strings.EqualFold(up[0], "websocket") && !strings.EqualFold(up[0], "SPDY/3.1") {
		return fmt.Errorf("the Upgrade header is %q: the gateway passes on websocket and SPDY/3.1", up)
	}
	return nil
}

// Upgrades says whether a request asks for another protocol.
func Upgrades(r *http.Request) bool {
	for _, line := range r.Header["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return len(r.Header["Upgrade"]) > 0
			}
		}
	}
	return false
}
