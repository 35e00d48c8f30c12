package identity

import (
	"net"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/xbernetes/xbernetes/internal/pki"
)

// Own is what a gateway makes for itself: an authority, a serving certificate,
// and its administrator's certificate.
type Own struct{ CA, Serving, Admin pki.Pair }

// LoadOwn reads an Own from a folder, and makes the certificates that are missing there or
// have nearly expired. The serving certificate is for a gateway that listens at addr, and
// covers sans, too.
func LoadOwn(dir string, addr net.Addr, sans []string) (own *Own, err error) {
	own = &Own{}
	if own.CA, own.Serving, err = pki.Own(dir, "xbernetes-gateway", addr, sans); err != nil {
		return nil, err
	}
	own.Admin, err = own.CA.Issue(dir, "admin", pki.Leaf{Name: "xbernetes-gateway-admin", Groups: []string{user.SystemPrivilegedGroup}})
	return own, err
}
