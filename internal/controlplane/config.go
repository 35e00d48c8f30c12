package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"
)

// Endpoint says where the etcd v3 API is served. Exactly one of Addresses and
// Dial is set.
type Endpoint struct {
	// Addresses are etcd URLs: http://host:port, https://host:port, unix:///path.
	Addresses []string
	// CAFile, CertFile and KeyFile are PEM files for https addresses.
	CAFile, CertFile, KeyFile string
	// Dial connects to an etcd API in this process. It is called once for every
	// client that the API server opens, hundreds of times, and concurrently.
	Dial func(ctx context.Context) (net.Conn, error)
	// Away says why the store behind the endpoint does not answer; nil if it does.
	// Readiness asks it often, so it must not wait. Nil: the endpoint is probed.
	Away func() error
	// Prefix is the key prefix of Kubernetes objects; /registry when empty.
	Prefix string
}

// Config is what a Server needs to know. The zero value of every optional
// field is a useful default.
type Config struct {
	// Etcd is where the state lives. Required.
	Etcd Endpoint
	// DataDir holds what makes this server itself: its id, CA, certificates and
	// service-account key. It is created, with mode 0700, if it does not exist,
	// and locked while the server runs. Required.
	DataDir string
	// Listen is the address to serve HTTPS on; 127.0.0.1:6443 when empty. Port 0
	// picks a free port. Nothing else is ever listened on.
	Listen string
	// AdvertiseURL is the URL that clients use, written to the kubeconfig; made
	// from the listening address when empty.
	AdvertiseURL string
	// ExtraSANs are further host names and IP addresses in the serving certificate.
	ExtraSANs []string
	// Kubeconfig is the file that receives the administrator's kubeconfig, written
	// atomically with mode 0600 once the server is ready. It replaces the file,
	// and merges nothing. DataDir/kubeconfig when empty.
	Kubeconfig string
	// ContextName names the context, cluster and user in the kubeconfig; "xb" when empty.
	ContextName string
	// ServerID overrides the id kept in DataDir. It must be a DNS label, unique
	// among the servers on one store.
	ServerID string
	// Logger receives all messages, klog's included; slog.Default() when nil.
	Logger *slog.Logger
	// Alone says that no other server can be on the store. A new CRD then counts
	// as established at once, and not after the five seconds in which it reaches
	// the others.
	Alone bool
	// LeaderElection paces the election among servers on one store.
	LeaderElection LeaderElection
	// Options are passed on to the API server.
	Options Options
}

// LeaderElection paces the lease by which one of several servers runs the
// controllers. Longer times mean fewer writes to the store, and a longer pause
// when the leader is killed for good. A leader that stops cleanly hands over at
// once, and one that is killed and comes back goes on at once.
type LeaderElection struct {
	// Lease is how long others wait before they take over; 120s when zero.
	Lease time.Duration
	// Renew is how long the leader tries to renew before it gives up; 80s when zero.
	Renew time.Duration
	// Retry is the time between renewals, one write to the store each; 40s when zero.
	Retry time.Duration
}

// Options are those settings of kube-apiserver that make sense here, under the
// names of its flags. On a store with several servers all of them should agree.
type Options struct {
	// EncryptionProviderConfig is a file with an EncryptionConfiguration; it is
	// read again when it changes. Every server on a store needs the same keys.
	EncryptionProviderConfig string
	// AuditPolicyFile and AuditLogPath switch the audit log on; path - is stdout.
	AuditPolicyFile, AuditLogPath string
	// AuditWebhookConfigFile is a kubeconfig for an audit webhook.
	AuditWebhookConfigFile string
	// AuthenticationConfig is a file with an AuthenticationConfiguration (OIDC,
	// JWT issuers, anonymous access).
	AuthenticationConfig string
	// AuthorizationConfig is a file with an AuthorizationConfiguration (webhooks
	// beside RBAC). RBAC alone when empty.
	AuthorizationConfig string
	// AdmissionControlConfig is a file with an AdmissionConfiguration.
	AdmissionControlConfig string
	// EnableAdmissionPlugins and DisableAdmissionPlugins adjust the default set.
	EnableAdmissionPlugins, DisableAdmissionPlugins []string
	// FeatureGates switches features by name.
	FeatureGates map[string]bool
	// RuntimeConfig switches API groups and versions, as in "api/beta": "true".
	RuntimeConfig map[string]string
	// EventTTL is how long events are kept; 1h when zero.
	EventTTL time.Duration
	// StorageCountPeriod is how often the objects of every kind are counted for the
	// metric apiserver_storage_objects and for the fair queuing of lists. Each count
	// is a linearizable read of the store, for each kind. Never when zero.
	StorageCountPeriod time.Duration
	// ServiceAccountIssuer is the issuer of service-account tokens, an https URL,
	// the same on every server; https://kubernetes.default.svc when empty.
	ServiceAccountIssuer string
	// MaxConnections is how many connections callers may have open in all; of one
	// address as many as are free. 10,000 when zero, no limit when negative.
	MaxConnections int
	// MaxWatches is how many watches and other long-running requests callers may
	// have in all; one user as many as are free; system:masters are not counted.
	// 20,000 when zero, no limit when negative.
	MaxWatches int
	// Verbosity is klog's -v. Above 0, klog's informational messages are logged
	// at level Info, else at Debug.
	Verbosity int
}

// DefaultIssuer issues service-account tokens unless Options name another.
const DefaultIssuer = "https://kubernetes.default.svc"

// DefaultMaxConnections and DefaultMaxWatches hold unless Options say otherwise.
const (
	DefaultMaxConnections = 10_000
	DefaultMaxWatches     = 20_000
)

// withDefaults fills in what was left empty and checks the rest.
func (c Config) withDefaults() (Config, error) {
	if (len(c.Etcd.Addresses) == 0) == (c.Etcd.Dial == nil) {
		return c, errors.New("set exactly one of the etcd addresses and the in-process etcd dialer")
	}
	if c.DataDir == "" {
		return c, errors.New("no data directory: set one, it keeps this server's CA and keys")
	}
	if c.Etcd.Prefix == "" {
		c.Etcd.Prefix = "/registry"
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:6443"
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return c, fmt.Errorf("parse listen address %q (want host:port): %w", c.Listen, err)
	}
	if c.AdvertiseURL != "" {
		if u, err := url.Parse(c.AdvertiseURL); err != nil || u.Scheme != "https" || u.Host == "" {
			return c, fmt.Errorf("advertised URL %q is not of the form https://host:port", c.AdvertiseURL)
		}
	}
	if c.ServerID != "" && !validServerID(c.ServerID) {
		return c, fmt.Errorf("server id %q is not a DNS label of at most 40 characters (a-z, 0-9, -)", c.ServerID)
	}
	if c.ContextName == "" {
		c.ContextName = "xb"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Options.ServiceAccountIssuer == "" {
		c.Options.ServiceAccountIssuer = DefaultIssuer
	}
	if c.Options.EventTTL == 0 {
		c.Options.EventTTL = time.Hour
	}
	c.Options.MaxConnections = cmp.Or(c.Options.MaxConnections, DefaultMaxConnections)
	c.Options.MaxWatches = cmp.Or(c.Options.MaxWatches, DefaultMaxWatches)
	le := &c.LeaderElection
	if *le == (LeaderElection{}) {
		*le = LeaderElection{Lease: 120 * time.Second, Renew: 80 * time.Second, Retry: 40 * time.Second}
	}
	// client-go jitters the retry by up to 1.2.
	if le.Retry <= 0 || float64(le.Renew) <= 1.2*float64(le.Retry) || le.Lease <= le.Renew {
		return c, fmt.Errorf("leader election wants lease > renew > 1.2 × retry > 0, not %s, %s, %s", le.Lease, le.Renew, le.Retry)
	}
	return c, nil
}
