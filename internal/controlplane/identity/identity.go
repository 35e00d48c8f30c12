// Package identity keeps what makes a server itself, in its data directory: an
// id, a CA, certificates and the key of its service accounts. No private key ever
// leaves that directory.
package identity

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/internal/pki"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// FrontProxyName is the name in the certificate that is shown to aggregated API
// servers.
const FrontProxyName = "front-proxy-client"

// An Identity is an id and key material, made once in a data directory and
// reused ever after. The directory is locked until Close.
type Identity struct {
	// ID is unique among the servers on one store.
	ID string
	// CA signs the serving and client certificates of this server.
	CA pki.Pair
	// Serving is the certificate that the server shows to its clients.
	Serving pki.Pair
	// Admin is a client certificate in the group system:masters.
	Admin pki.Pair
	// FrontProxy is the client certificate shown to aggregated API servers.
	FrontProxy pki.Pair
	// ServiceAccountKey signs service-account tokens, and ServiceAccountPub is its
	// public half; both PEM.
	ServiceAccountKey, ServiceAccountPub []byte

	dir  string
	lock *os.File
}

var serverIDPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// ValidID reports whether s can be the id of a server.
func ValidID(s string) bool { return serverIDPattern.MatchString(s) }

// Open locks dir, and reads the identity in it. It makes keys and certificates
// that are missing, and issues certificates anew that are about to expire. sans are
// the names that the serving certificate must cover.
func Open(dir, serverID string, sans []string) (*Identity, error) {
	lock, err := privatefile.Claim(dir, "server")
	if err != nil {
		return nil, err
	}
	id := &Identity{dir: dir, lock: lock}
	if err := id.load(serverID, sans); err != nil {
		id.Close()
		return nil, err
	}
	return id, nil
}

func (id *Identity) load(serverID string, sans []string) error {
	err := privatefile.MkdirAll(id.Path(""))
	if err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if id.ID, err = loadServerID(filepath.Join(id.dir, "server-id"), serverID); err != nil {
		return err
	}
	dir := id.Path("")
	if id.CA, err = pki.Authority(dir, "ca", "xbernetes-ca-"+id.ID); err != nil {
		return err
	}
	frontProxyCA, err := pki.Authority(dir, "front-proxy-ca", "xbernetes-front-proxy-ca-"+id.ID)
	if err != nil {
		return err
	}
	if id.Serving, err = id.CA.Issue(dir, "serving", pki.Leaf{Name: "xbernetes", SANs: sans, Server: true}); err != nil {
		return err
	}
	if id.Admin, err = id.CA.Issue(dir, "admin", pki.Leaf{Name: "xbernetes-admin:" + id.ID, Groups: []string{"system:masters"}}); err != nil {
		return err
	}
	if id.FrontProxy, err = frontProxyCA.Issue(dir, "front-proxy-client", pki.Leaf{Name: FrontProxyName}); err != nil {
		return err
	}
	return id.loadServiceAccountKey()
}

// Close unlocks the data directory.
func (id *Identity) Close() { _ = id.lock.Close() }

// Path is that of a file of the key material.
func (id *Identity) Path(name string) string { return filepath.Join(id.dir, "pki", name) }

func (id *Identity) loadServiceAccountKey() error {
	file := id.Path("service-account.key")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if b, err = newServiceAccountKey(); err == nil {
			err = privatefile.Write(file, b)
		}
	}
	if err == nil {
		id.ServiceAccountKey = b
		id.ServiceAccountPub, err = publicPEM(b)
	}
	if err != nil {
		return fmt.Errorf("load service-account key %s: %w", file, err)
	}
	return nil
}

// loadServerID returns the id in file. The first start picks it: want if given,
// else at random, since two accounts may well give their hosts the same name.
func loadServerID(file, want string) (string, error) {
	b, err := os.ReadFile(file)
	have := string(bytes.TrimSpace(b))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read server id: %w", err)
	case err == nil && !ValidID(have):
		return "", fmt.Errorf("%s does not hold a server id; restore it, or delete it to become a new server", file)
	case err == nil && (want == "" || want == have):
		return have, nil
	case want == "":
		var r [5]byte
		if _, err := rand.Read(r[:]); err != nil {
			return "", fmt.Errorf("make server id: %w", err)
		}
		want = "s" + hex.EncodeToString(r[:])
	}
	if err := privatefile.Write(file, []byte(want+"\n")); err != nil {
		return "", fmt.Errorf("write server id: %w", err)
	}
	return want, nil
}

// ServingNames are the names under which clients may call the server.
func ServingNames(listen net.Addr, advertise string, extra []string) []string {
	names := []string{"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if tcp, ok := listen.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		names = append(names, tcp.IP.String())
	} else if host, err := os.Hostname(); err == nil {
		// The server listens on every address: clients may use the host's name or any of its addresses.
		names = append(names, strings.ToLower(host))
		names = append(names, InterfaceIPs()...)
	}
	if u, err := url.Parse(advertise); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	names = append(names, extra...)
	slices.Sort(names)
	return slices.Compact(names)
}

// InterfaceIPs are the addresses of this host that others may reach it by.
func InterfaceIPs() []string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var ips []string
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			ips = append(ips, n.IP.String())
		}
	}
	return ips
}
