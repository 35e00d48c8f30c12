package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/xbernetes/xbernetes/internal/gateway/discovery/swagger"
	"github.com/xbernetes/xbernetes/internal/weight"
)

// OpenAPIDocument is one server's OpenAPI. It does not change once it is made.
type OpenAPIDocument struct {
	// V3 are the paths that the server lists below /openapi/v3/, with the hash of each.
	V3 map[string]string
	// V2 is the server's OpenAPI v2; nil if no client has asked for it yet, or the
	// server has none.
	V2 *swagger.Document

	v3Sum  [sha256.Size]byte // of the body that V3 was read from
	v2ETag string
}

// FetchOpenAPI asks a server for its OpenAPI; for v2 only if v2 is set. previous may be nil;
// if nothing has changed, FetchOpenAPI returns previous itself.
func FetchOpenAPI(ctx context.Context, rt http.RoundTripper, path string, v2 bool, previous *OpenAPIDocument) (*OpenAPIDocument, error) {
	if path == "" {
		path = "/openapi"
	}
	path = strings.TrimSuffix(path, "/")
	next := OpenAPIDocument{}
	if previous != nil {
		next = *previous
	}
	changed := previous == nil
	switch a, err := get(ctx, rt, request{path: path + "/v3", limit: maxDiscovery}); {
	case notThere(err):
		changed = changed || next.V3 != nil
		next.V3, next.v3Sum = nil, [sha256.Size]byte{}
	case err != nil:
		return previous, err
	case sha256.Sum256(a.body) != next.v3Sum:
		if next.V3, err = readV3(a.body); err != nil {
			return previous, fmt.Errorf("GET %s/v3: %w", path, err)
		}
		next.v3Sum, changed = sha256.Sum256(a.body), true
	}
	if !v2 {
		if changed {
			return &next, nil
		}
		return previous, nil
	}
	etag := next.v2ETag
	if next.V2 == nil {
		etag = ""
	}
	switch a, err := get(ctx, rt, request{path: path + "/v2", etag: etag, limit: maxOpenAPI}); {
	case notThere(err):
		changed = changed || next.V2 != nil
		next.V2, next.v2ETag = nil, ""
	case err != nil:
		return previous, err
	case !a.unchanged:
		if next.V2, err = swagger.Read(a.body); err != nil {
			return previous, fmt.Errorf("GET %s/v2: %w", path, err)
		}
		next.v2ETag, changed = a.etag, true
	}
	if changed {
		return &next, nil
	}
	return previous, nil
}

// notThere says that a server has no such document, or does not show it to the gateway.
func notThere(err error) bool {
	var status *statusError
	return errors.As(err, &status) && (status.code == http.StatusNotFound || status.code == http.StatusForbidden || status.code == http.StatusNotAcceptable)
}

// readV3 reads the root of a server's OpenAPI v3: the paths that it lists, and the hash in
// the URL of each.
func readV3(body []byte) (map[string]string, error) {
	if weight.Of(body) > maxDecoded {
		return nil, fmt.Errorf("read OpenAPI v3: %w", weight.ErrTooHeavy)
	}
	var root struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(body, &root); err != nil {
		return nil, fmt.Errorf("read OpenAPI v3: %w", err)
	}
	if len(root.Paths) > 3*maxVersions {
		return nil, fmt.Errorf("read OpenAPI v3: it lists %d paths, which is more than the gateway takes of one server", len(root.Paths))
	}
	out := make(map[string]string, len(root.Paths))
	for path, item := range root.Paths {
		u, err := url.Parse(item.URL)
		if err != nil {
			return nil, fmt.Errorf("read OpenAPI v3: %s: %w", path, err)
		}
		out[path] = u.Query().Get("hash")
	}
	return out, nil
}

// PathOwner returns the server of a path below /openapi/v3/: for apis/GROUP/… the group's
// holder, for any other path the core server.
func PathOwner(path string, holder map[string]string) (string, bool) {
	group := ""
	if rest, ok := strings.CutPrefix(path, "apis/"); ok {
		group, _, _ = strings.Cut(rest, "/")
	}
	server, ok := holder[group]
	return server, ok
}

// rootV3 returns the root of all servers' OpenAPI v3, and its ETag.
func rootV3(members []Member, holder map[string]string) (body []byte, etag string) {
	type item struct {
		URL string `json:"serverRelativeURL"`
	}
	paths := map[string]item{}
	for i := range members {
		if members[i].OpenAPI == nil {
			continue
		}
		for path, hash := range members[i].OpenAPI.V3 {
			if owner, ok := PathOwner(path, holder); ok && owner == members[i].Name {
				paths[path] = item{(&url.URL{Path: "/openapi/v3/" + path, RawQuery: url.Values{"hash": {hash}}.Encode()}).String()}
			}
		}
	}
	body, err := json.Marshal(map[string]any{"paths": paths}) // keys come sorted
	if err != nil {
		panic(err) // strings only
	}
	return body, fmt.Sprintf("%q", fmt.Sprintf("%X", sha256.Sum256(body)))
}
