package controlplane

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/xbernetes/xbernetes/internal/controlplane/election"
	"github.com/xbernetes/xbernetes/internal/controlplane/identity"
)

// Endpoint says where the etcd v3 API is served. Exactly one of Addresses and
// InProcess is set.
type Endpoint struct {
	// Addresses are etcd URLs: http://host:port, https://host:port, unix:///path.
	Addresses []string
	// CAFile, CertFile and KeyFile are PEM files for https addresses.
	CAFile, CertFile, KeyFile string
	// InProcess are the options with which gRPC clients reach an etcd API in this
	// process, whatever address they are given. The API server opens hundreds of
	// clients with them. If InProcess is set, Away is required.
	InProcess []grpc.DialOption
	// Away returns why the store behind the endpoint does not answer, and nil if it
	// does. Readiness asks it often, so it must not wait. If Away is nil, readiness
	// probes the endpoint.
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
	// picks a free port. The server listens on no other address.
	Listen string
	// AdvertiseURL is the URL that clients use, written to the kubeconfig; made
	// from the listening address when empty.
	AdvertiseURL string
	// ExtraSANs are further host names and IP addresses in the serving certificate.
	ExtraSANs []string
	// Kubeconfig is the file for the administrator's kubeconfig, which is written
	// atomically with mode 0600 once the server is ready, and replaces an existing
	// file. DataDir/kubeconfig when empty.
	Kubeconfig string
	// ContextName names the context, cluster and user in the kubeconfig; "xb" when empty.
	ContextName string
	// ServerID overrides the id kept in DataDir. It must be a DNS label, unique
	// among the servers on one store.
	ServerID string
	// Logger receives all messages, klog's included; slog.Default() when nil.
	Logger *slog.Logger
	// Alone is true if no other server can be on the store. A new CRD then counts
	// as established at once, and not after the five seconds in which it reaches
	// the other servers.
	Alone bool
	// LeaderElection paces the lease by which one of the servers on a store runs the
	// controllers: 120s, 80s and 40s when zero. Longer times mean fewer writes to the
	// store, and a longer pause if the leader is killed for good. A leader that stops
	// cleanly hands over at once. A leader that is killed and started again goes on at
	// once.
	LeaderElection election.Pace
	// Options are passed on to the API server.
	Options Options
}

// Options are the settings of kube-apiserver that apply here, under the names of
// its flags. All servers on a store should have the same.
type Options struct {
	Files
	// AuditLogPath receives the audit log, if there is an AuditPolicyFile; path -
	// is stdout.
	AuditLogPath string
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
	// MaxConnections is how many connections all callers together may have open; one
	// address may have as many as are free. 10,000 when zero, no limit when negative.
	MaxConnections int
	// MaxWatches is how many watches and other long-running requests all callers
	// together may have; one user may have as many as are free. Those of
	// system:masters are not counted. 20,000 when zero, no limit when negative.
	MaxWatches int
	// Verbosity is klog's -v. Above 0, klog's informational messages are logged
	// at level Info, else at Debug.
	Verbosity int
}

// Files are configuration files of the API server. Any of them may be empty.
type Files struct {
	// EncryptionProviderConfig is a file with an EncryptionConfiguration; it is
	// read again when it changes. Every server on a store needs the same keys.
	EncryptionProviderConfig string
	// AuditPolicyFile switches the audit log on.
	AuditPolicyFile string
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
}

// check reports a file that cannot be read, before anything is changed.
func (f Files) check() error {
	for _, name := range []string{
		f.EncryptionProviderConfig, f.AuditPolicyFile, f.AuditWebhookConfigFile,
		f.AuthenticationConfig, f.AuthorizationConfig, f.AdmissionControlConfig,
	} {
		if name == "" {
			continue
		}
		if _, err := os.ReadFile(name); err != nil {
			return fmt.Errorf("read configuration file: %w", err)
		}
	}
	return nil
}

// DefaultIssuer issues service-account tokens unless Options name another.
const DefaultIssuer = "https://kubernetes.default.svc"

// DefaultMaxConnections and DefaultMaxWatches hold unless Options say otherwise.
const (
	DefaultMaxConnections = 10_000
	DefaultMaxWatches     = 20_000
)

// withDefaults sets the defaults of empty fields, and checks the others.
func (c Config) withDefaults() (Config, error) {
	c.Etcd.Prefix = cmp.Or(c.Etcd.Prefix, "/registry")
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:6443")
	c.ContextName = cmp.Or(c.ContextName, "xb")
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Options.ServiceAccountIssuer = cmp.Or(c.Options.ServiceAccountIssuer, DefaultIssuer)
	c.Options.EventTTL = cmp.Or(c.Options.EventTTL, time.Hour)
	c.Options.MaxConnections = cmp.Or(c.Options.MaxConnections, DefaultMaxConnections)
	c.Options.MaxWatches = cmp.Or(c.Options.MaxWatches, DefaultMaxWatches)
	c.LeaderElection = cmp.Or(c.LeaderElection, election.Pace{Lease: 120 * time.Second, Renew: 80 * time.Second, Retry: 40 * time.Second})
	return c, c.check()
}

func (c Config) check() error {
	if (len(c.Etcd.Addresses) == 0) == (len(c.Etcd.InProcess) == 0) {
		return errors.New("set exactly one of the etcd addresses and the way to an etcd API in this process")
	}
	if len(c.Etcd.InProcess) > 0 && c.Etcd.Away == nil {
		return errors.New("an etcd API in this process has no address to probe: set what tells that its store is away")
	}
	if c.DataDir == "" {
		return errors.New("no data directory: set one, it keeps this server's CA and keys")
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("parse listen address %q (want host:port): %w", c.Listen, err)
	}
	if c.AdvertiseURL != "" {
		if u, err := url.Parse(c.AdvertiseURL); err != nil || u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf("advertised URL %q is not of the form https://host:port", c.AdvertiseURL)
		}
	}
	if c.ServerID != "" && !identity.ValidID(c.ServerID) {
		return fmt.Errorf("server id %q is not a DNS label of at most 40 characters (a-z, 0-9, -)", c.ServerID)
	}
	return c.LeaderElection.Check()
}
