package identity

import (
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/xbernetes/xbernetes/internal/pki"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// Own is what a gateway makes for itself: an authority, a serving certificate,
// and its administrator's certificate.
type Own struct{ CA, Serving, Admin pki.Pair }

// LoadOwn reads an Own from a folder, and makes the certificates that are missing there or
// have nearly expired. The serving certificate covers all names.
func LoadOwn(dir string, names []string) (*Own, error) {
	if err := privatefile.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("make folder for certificates: %w", err)
	}
	id := &Own{}
	var err error
	if id.CA, err = pki.Authority(dir, "ca", "xbernetes-gateway-ca"); err != nil {
		return nil, err
	}
	if id.Serving, err = id.CA.Issue(dir, "serving", pki.Leaf{Name: "xbernetes-gateway", SANs: names, Server: true}); err != nil {
		return nil, err
	}
	id.Admin, err = id.CA.Issue(dir, "admin", pki.Leaf{Name: "xbernetes-gateway-admin", Groups: []string{user.SystemPrivilegedGroup}})
	return id, err
}
