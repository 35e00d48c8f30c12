// Package devstore is an S3-compatible object store on this machine, for
// development and tests: versitygw over a folder, with a bucket that several
// accounts share, each with credentials of its own. It is not for production:
// it does not sync to disk, so it loses what the machine had not written when
// the power goes (a killed process loses nothing).
package devstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"
)

// Region is the region that the store says it is in.
const Region = "us-east-1"

// Account is one party that may use the bucket. Its secret is never logged
// and never stored.
type Account struct {
	AccessKey, SecretKey string
	// Owner may also delete slots, and so trim a journal. Every other account
	// may delete blobs and probe keys only.
	Owner bool
}

// Config says what to run. Dir, Bucket and at least one account are required.
type Config struct {
	// Dir holds the objects. It is created if it is not there.
	Dir string
	// Listen is host:port. Empty: a free port on loopback. Another address
	// than loopback is refused unless AllowRemote is set.
	Listen      string
	AllowRemote bool
	// Bucket is created if it is not there. Every account may list it, and
	// read and write its objects.
	Bucket   string
	Accounts []Account
	// Policy is the policy of the bucket, whose principals are access keys. Empty: the
	// one that Account describes.
	Policy json.RawMessage `json:",omitempty"`
}

// Store is an object store that is ready to run.
type Store struct {
	cfg   Config
	port  *port
	ready chan struct{}
}

var (
	bucketPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)
	keyPattern    = regexp.MustCompile(`^[A-Za-z0-9_-]{3,128}$`)
)

// Open checks cfg and takes the address. Run must follow.
func Open(cfg Config) (*Store, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if cfg.Dir == "" || err != nil {
		return nil, errors.New("open object store: no directory is given")
	}
	cfg.Dir = dir
	if !bucketPattern.MatchString(cfg.Bucket) {
		return nil, fmt.Errorf("open object store: bucket name %q is not valid; it has 3 to 63 of a-z, 0-9 and hyphen", cfg.Bucket)
	}
	if len(cfg.Accounts) == 0 {
		return nil, errors.New("open object store: no account is given")
	}
	seen := map[string]bool{rootKey: true}
	for _, account := range cfg.Accounts {
		if !keyPattern.MatchString(account.AccessKey) || seen[account.AccessKey] {
			return nil, fmt.Errorf("open object store: access key %q is not valid, or is given twice", account.AccessKey)
		}
		if len(account.SecretKey) < 8 {
			return nil, fmt.Errorf("open object store: the secret key of %q is shorter than 8 characters", account.AccessKey)
		}
		seen[account.AccessKey] = true
	}
	port, err := takePort(cfg.Listen, cfg.AllowRemote)
	if err != nil {
		return nil, fmt.Errorf("open object store: %w", err)
	}
	return &Store{cfg: cfg, port: port, ready: make(chan struct{})}, nil
}

// Endpoint is the base URL of the store.
func (s *Store) Endpoint() string { return "http://" + s.port.addr }

// Addr is the host:port that the store listens on.
func (s *Store) Addr() string { return s.port.addr }

// Ready is closed once the store takes requests.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends. It may be called once, and only one store may
// run in a process at a time.
//
// It changes the working directory of the process to the store's, because the
// gateway names files relative to it, and must find it unchanged while it
// runs. A program that uses relative paths runs the store in a process of its
// own.
func (s *Store) Run(ctx context.Context) error {
	defer s.port.release()
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("run object store in %s: %w", s.cfg.Dir, err)
	}
	return nil
}

func (s *Store) run(ctx context.Context) error {
	backend, err := s.openBackend()
	if err != nil {
		return err
	}
	people := newAccounts(s.cfg.Accounts)
	if err := s.prepareBucket(ctx, backend, people); err != nil {
		backend.Shutdown()
		return err
	}
	var once sync.Once
	s.port.release()
	err = embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
		RootUserAccess:    rootKey,
		RootUserSecret:    rand.Text(), // nobody is root
		Region:            Region,
		Ports:             []string{s.port.addr},
		MaxConnections:    4096,
		MaxRequests:       4096,
		MultipartMaxParts: 10000,
		KeepAlive:         true,
		Quiet:             true,
		DisableACLs:       true,
		IAMService:        people,
		S3Options:         []s3api.Option{s3api.WithOnListen(func() { once.Do(func() { close(s.ready) }) })},
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// openBackend opens the folder. Attributes of objects are kept in extended
// attributes of files, or in a folder beside where the file system has none.
func (s *Store) openBackend() (*posix.Posix, error) {
	data, side := filepath.Join(s.cfg.Dir, "objects"), filepath.Join(s.cfg.Dir, "attributes")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	var options posix.PosixOpts
	options.SetNewDirPerm(0o700)
	options.SetNewFilePerm(0o600)
	_, noSide := os.Stat(side)
	if noSide != nil && (meta.XattrMeta{}).Test(data) == nil {
		return posix.New(data, meta.XattrMeta{}, options)
	}
	if err := os.MkdirAll(side, 0o700); err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	attributes, err := meta.NewSideCar(side)
	if err != nil {
		return nil, err
	}
	options.SideCarDir = side
	return posix.New(data, attributes, options)
}

// port is an address that is held until the server that wants it listens.
type port struct {
	addr string
	held net.Listener
	once sync.Once
}

func takePort(listen string, allowRemote bool) (*port, error) {
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("address %q is not valid; want host:port", listen)
	}
	ip := net.ParseIP(host)
	loopback := host == "localhost" || ip != nil && ip.IsLoopback()
	if !loopback && !(allowRemote && ip != nil && !ip.IsUnspecified()) {
		return nil, fmt.Errorf("address %q is not on loopback; the store is for this machine only, use 127.0.0.1", listen)
	}
	held, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; choose another port, or stop what uses it", listen, err)
	}
	return &port{addr: held.Addr().String(), held: held}, nil
}

// release lets go of the address, so that it can be listened on again.
func (p *port) release() { p.once.Do(func() { _ = p.held.Close() }) }
