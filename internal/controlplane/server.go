package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"

	"github.com/xbernetes/xbernetes/internal/controlplane/controllers"
	"github.com/xbernetes/xbernetes/internal/controlplane/identity"
	"github.com/xbernetes/xbernetes/internal/controlplane/roster"
	"github.com/xbernetes/xbernetes/internal/controlplane/stage"
	"github.com/xbernetes/xbernetes/internal/controlplane/storage"
	"github.com/xbernetes/xbernetes/internal/controlplane/transaction"
	"github.com/xbernetes/xbernetes/internal/controlplane/transaction/upcoming"
	"github.com/xbernetes/xbernetes/internal/kubeconfig"
)

// controllersGrace bounds how long a stop waits for the controllers.
const controllersGrace = 3 * time.Second

// ErrRunning is returned by Run while another Server runs in this process.
var ErrRunning = errors.New("another control plane runs in this process; k8s.io/kubernetes has global state, so give each a process of its own")

// running guards the globals of k8s.io/kubernetes.
var running atomic.Bool

// Server is one Kubernetes API server with its controllers.
type Server struct {
	cfg   Config
	log   *slog.Logger
	ready chan struct{}
	phase *atomic.Int32 // of klog's bridge; set by Run

	mu       sync.Mutex
	url      string
	id       string
	loopback *rest.Config
}

// New checks the configuration. It touches neither disk nor network.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure control plane: %w", err)
	}
	return &Server{cfg: cfg, log: cfg.Logger, ready: make(chan struct{})}, nil
}

// Ready closes once the server answers /readyz, the kubeconfig is written, and
// URL, ID and LoopbackClientConfig are set.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// URL is where clients reach the server, as in the kubeconfig.
func (s *Server) URL() string { s.mu.Lock(); defer s.mu.Unlock(); return s.url }

// ID is this server's id, unique among those on one store.
func (s *Server) ID() string { s.mu.Lock(); defer s.mu.Unlock(); return s.id }

// KubeconfigFile is the file that the administrator's kubeconfig is written to.
func (s *Server) KubeconfigFile() string {
	if s.cfg.Kubeconfig != "" {
		return s.cfg.Kubeconfig
	}
	return filepath.Join(s.cfg.DataDir, "kubeconfig")
}

// LoopbackClientConfig is an all-powerful client's configuration, for parts of
// this process; nil before Ready.
func (s *Server) LoopbackClientConfig() *rest.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loopback == nil {
		return nil
	}
	return rest.CopyConfig(s.loopback)
}

// Run serves until ctx ends, and returns once everything is down: nil after a
// clean stop. It waits for the store for as long as it takes. A Server runs once.
func (s *Server) Run(ctx context.Context) error {
	if !running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer running.Store(false)
	var err error
	if s.phase, err = bridgeKlog(s.log, s.cfg.Options.Verbosity, s.cfg.Etcd.Away); err != nil {
		return err
	}
	if err := s.cfg.Options.Files.check(); err != nil {
		return err
	}
	if err := setGlobals(s.cfg.Options); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer context.AfterFunc(ctx, func() { s.phase.Store(phaseStopping) })()
	catchFatal(fail)
	if err := s.open(ctx); err != nil {
		return err
	}
	if errors.Is(context.Cause(ctx), errGaveUp) {
		return errGaveUp
	}
	return nil
}

// open opens the listener, the data directory and the store's client, and serves.
func (s *Server) open(ctx context.Context) error {
	ln, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s (is another server running there?): %w", s.cfg.Listen, err)
	}
	defer ln.Close() // again, after a clean stop
	id, err := identity.Open(s.cfg.DataDir, s.cfg.ServerID, identity.ServingNames(ln.Addr(), s.cfg.AdvertiseURL, s.cfg.ExtraSANs))
	if err != nil {
		return err
	}
	defer id.Close()
	etcd, err := s.cfg.Etcd.client()
	if err != nil {
		return err
	}
	defer etcd.Close() //nolint:errcheck // nothing is lost

	self := roster.Member{CA: id.CA.CertPEM, ServiceAccountKeys: [][]byte{id.ServiceAccountPub}}
	store := stage.Store{KV: etcd.KV, Apart: s.cfg.Etcd.InProcess != nil}
	opener := &storage.Opener{Client: s.cfg.Etcd.client, Store: store}
	defer opener.Close() //nolint:errcheck // nothing is lost
	p := parts{ln: ln, id: id, roster: roster.New(etcd, id.ID, self, s.log), tokens: &tokenGetter{}, storage: opener, transactions: transaction.New(store, etcd.Lease), upcoming: upcoming.New(), etcd: etcd}
	if p.opts, err = serverOptions(ctx, s.cfg, p); err != nil {
		return err
	}
	if err := p.roster.Join(ctx, s.cfg.Etcd.String()); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while waiting for the store
		}
		return err
	}
	if s.cfg.Options.EncryptionProviderConfig == "" {
		if err := refuseEncrypted(ctx, etcd); err != nil {
			return err
		}
	}
	return s.serve(ctx, p)
}

// parts are what the API server is made from, once the identity is open.
type parts struct {
	ln           net.Listener
	id           *identity.Identity
	roster       *roster.Roster
	tokens       *tokenGetter
	storage      *storage.Opener
	transactions *transaction.Server
	upcoming     *upcoming.Namespaces // that transactions create
	etcd         *clientv3.Client     // for what is no kind
	opts         options.CompletedOptions
}

// serve builds and runs the API server, the roster and the controllers. The
// controllers stop before the API server, because they need it.
func (s *Server) serve(ctx context.Context, p parts) error {
	// The API server outlives ctx by the time that the controllers need to stop.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()

	api, err := newChain(s.cfg, p)
	if err != nil {
		return err
	}
	prepared, err := api.server.PrepareRun()
	if err != nil {
		return fmt.Errorf("prepare API server: %w", err)
	}

	s.mu.Lock()
	s.id, s.url, s.loopback = p.id.ID, s.clientURL(p.ln.Addr()), api.loopback
	s.mu.Unlock()

	g, running := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer stopServing()
		if err := prepared.Run(serving); err != nil {
			return fmt.Errorf("run API server: %w", err)
		}
		if running.Err() == nil {
			return errors.New("run API server: it stopped by itself")
		}
		return nil
	})
	g.Go(func() error { return p.roster.Run(running) })
	g.Go(func() error {
		defer stopServing()
		return s.operate(running, &controllers.Set{Loopback: api.loopback, Identity: p.id, Roster: p.roster, Definitions: servedDefinitions, Log: s.log})
	})
	return g.Wait()
}

// operate waits until the API is up, reports that, and runs the controllers.
func (s *Server) operate(ctx context.Context, c *controllers.Set) error {
	client, err := kubernetes.NewForConfig(c.Loopback)
	if err != nil {
		return fmt.Errorf("make loopback client: %w", err)
	}
	if !untilReady(ctx, client) {
		return nil
	}
	url := s.URL()
	admin := kubeconfig.Access{Name: s.cfg.ContextName, URL: url, CA: c.Identity.CA.CertPEM, Cert: c.Identity.Admin.CertPEM, Key: c.Identity.Admin.KeyPEM}
	if err := kubeconfig.Write(s.KubeconfigFile(), admin); err != nil {
		return err
	}
	s.log.Info("serving the Kubernetes API", "url", url, "kubeconfig", s.KubeconfigFile(), "server", c.Identity.ID)
	close(s.ready)
	s.phase.CompareAndSwap(phaseStarting, phaseServing)

	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, s.cfg.LeaderElection) }()
	select {
	case err = <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err = <-done:
		return err
	case <-time.After(controllersGrace):
		s.log.Warn("the controllers did not stop in time; going on without them", "after", controllersGrace)
		return nil
	}
}

// untilReady polls until the server is ready and the namespaces that the
// controllers need exist. It returns false if ctx ends first.
func untilReady(ctx context.Context, client kubernetes.Interface) bool {
	err := wait.PollUntilContextCancel(ctx, 25*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var status int
		client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
		if status != http.StatusOK {
			return false, nil
		}
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return !apierrors.IsNotFound(err) && err == nil, nil
	})
	return err == nil
}

func (s *Server) clientURL(addr net.Addr) string {
	if s.cfg.AdvertiseURL != "" {
		return s.cfg.AdvertiseURL
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "https://" + addr.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, port)
}

var errGaveUp = errors.New("a part of the Kubernetes API server gave up; the last errors in the log say why")

// catchFatal turns klog.Fatal, which upstream calls if a post-start hook fails,
// into an error of Run: it ends the goroutine that called it, and not the process.
func catchFatal(fail context.CancelCauseFunc) {
	klog.OsExit = func(int) {
		fail(errGaveUp)
		goruntime.Goexit()
	}
}
