package controlplane

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

// identity is what makes a server itself: an id and key material, made once in
// its data directory and reused ever after. The directory is locked until close.
type identity struct {
	dir  string
	lock *os.File
	id   string

	ca           pki.Pair // signs the serving and client certificates of this server
	serving      pki.Pair
	admin        pki.Pair // a client certificate in the group system:masters
	frontProxyCA pki.Pair
	frontProxy   pki.Pair // the client certificate shown to aggregated API servers

	serviceAccountKey []byte // PEM, private
	serviceAccountPub []byte // PEM, public
}

var serverIDPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

func validServerID(s string) bool { return serverIDPattern.MatchString(s) }

// openIdentity locks dir, and reads the identity in it, making what is missing
// or about to expire. sans are the names that the serving certificate must cover.
func openIdentity(dir, serverID string, sans []string) (*identity, error) {
	if err := privatefile.MkdirAll(filepath.Join(dir, "pki")); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	lock, err := privatefile.Lock(filepath.Join(dir, "server.lock"))
	if errors.Is(err, privatefile.ErrLocked) {
		return nil, fmt.Errorf("data directory %s is in use by another server; stop that one, or give this one a directory of its own", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	id := &identity{dir: dir, lock: lock}
	if err := id.load(serverID, sans); err != nil {
		id.close()
		return nil, err
	}
	return id, nil
}

func (id *identity) load(serverID string, sans []string) error {
	var err error
	if id.id, err = loadServerID(filepath.Join(id.dir, "server-id"), serverID); err != nil {
		return err
	}
	dir := id.path("")
	if id.ca, err = pki.Authority(dir, "ca", "xbernetes-ca-"+id.id); err != nil {
		return err
	}
	if id.frontProxyCA, err = pki.Authority(dir, "front-proxy-ca", "xbernetes-front-proxy-ca-"+id.id); err != nil {
		return err
	}
	if id.serving, err = id.ca.Issue(dir, "serving", pki.Leaf{Name: "xbernetes", SANs: sans, Server: true}); err != nil {
		return err
	}
	if id.admin, err = id.ca.Issue(dir, "admin", pki.Leaf{Name: "xbernetes-admin:" + id.id, Groups: []string{"system:masters"}}); err != nil {
		return err
	}
	if id.frontProxy, err = id.frontProxyCA.Issue(dir, "front-proxy-client", pki.Leaf{Name: frontProxyName}); err != nil {
		return err
	}
	return id.loadServiceAccountKey()
}

// close unlocks the data directory.
func (id *identity) close() { _ = id.lock.Close() }

func (id *identity) path(name string) string { return filepath.Join(id.dir, "pki", name) }

func (id *identity) loadServiceAccountKey() error {
	file := id.path("service-account.key")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if b, err = newServiceAccountKey(); err == nil {
			err = privatefile.Write(file, b)
		}
	}
	if err == nil {
		id.serviceAccountKey = b
		id.serviceAccountPub, err = publicPEM(b)
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
	case err == nil && !validServerID(have):
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

// servingNames are the names under which clients may call the server.
func servingNames(listen net.Addr, advertise string, extra []string) []string {
	names := []string{"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if tcp, ok := listen.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		names = append(names, tcp.IP.String())
	} else if host, err := os.Hostname(); err == nil {
		// Listening on every address: whoever reaches it may use the host's name or any of its addresses.
		names = append(names, strings.ToLower(host))
		names = append(names, interfaceIPs()...)
	}
	if u, err := url.Parse(advertise); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	names = append(names, extra...)
	slices.Sort(names)
	return slices.Compact(names)
}

func interfaceIPs() []string {
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
