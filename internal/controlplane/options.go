package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	apiserverfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	sample "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"

	"github.com/xbernetes/xbernetes/internal/door"
)

// setGlobals sets what k8s.io/kubernetes keeps in package variables.
func setGlobals(o Options) error {
	// Identity leases tell people and garbage collection which servers exist: a
	// write every 20 minutes a server, not every 10 seconds.
	apiserver.IdentityLeaseDurationSeconds = 3600
	apiserver.IdentityLeaseRenewIntervalPeriod = 20 * time.Minute
	// Servers on one store cannot reach each other, hence cannot proxy for each other.
	gates := map[string]bool{
		string(apiserverfeatures.UnknownVersionInteroperabilityProxy): false,
		// Sizes without counts are of no use, and cost a read of the store a minute for every kind.
		string(apiserverfeatures.SizeBasedListCostEstimate): o.StorageCountPeriod > 0,
	}
	for name, on := range o.FeatureGates {
		gates[name] = on
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	return nil
}

// checkFiles finds out about a file that cannot be read before anything is changed.
func (o Options) checkFiles() error {
	for _, name := range []string{
		o.EncryptionProviderConfig, o.AuditPolicyFile, o.AuditWebhookConfigFile,
		o.AuthenticationConfig, o.AuthorizationConfig, o.AdmissionControlConfig,
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

// serverOptions translates the configuration into upstream's options, and has
// them checked.
func serverOptions(ctx context.Context, cfg Config, p parts) (options.CompletedOptions, error) {
	id, r := p.id, p.roster
	o := options.NewOptions()
	o.Metrics = nil // it has nothing to say, and logs an error for want of a label list

	o.Etcd.StorageConfig.Prefix = cfg.Etcd.Prefix
	o.Etcd.StorageConfig.Transport = cfg.Etcd.transport()
	o.Etcd.EncryptionProviderConfigFilepath = cfg.Options.EncryptionProviderConfig
	o.Etcd.EncryptionProviderConfigAutomaticReload = cfg.Options.EncryptionProviderConfig != ""
	o.Etcd.StorageConfig.CountMetricPollPeriod = cfg.Options.StorageCountPeriod
	o.EventTTL = cfg.Options.EventTTL

	o.SecureServing.Listener = door.Limit(p.ln, cfg.Options.MaxConnections, cfg.Logger)
	o.SecureServing.BindPort = p.ln.Addr().(*net.TCPAddr).Port // only checked: the listener counts
	o.SecureServing.ServerCert.CertKey.CertFile = id.path("serving.crt")
	o.SecureServing.ServerCert.CertKey.KeyFile = id.path("serving.key")
	o.GenericServerRunOptions.AdvertiseAddress = advertisedIP(p.ln.Addr())
	o.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = stopGrace / 2

	issuer := cfg.Options.ServiceAccountIssuer
	a := o.Authentication
	a.APIAudiences = []string{issuer}
	a.ClientCert.CAContentProvider = r.clientCAs()
	a.ServiceAccounts.Issuers = []string{issuer}
	a.ServiceAccounts.ExternalPublicKeysGetter = r.tokenKeys()
	a.ServiceAccounts.OptionalTokenGetter = p.tokens.bind
	a.AuthenticationConfigFile = cfg.Options.AuthenticationConfig
	a.RequestHeader.ClientCAFile = id.path("front-proxy-ca.crt")
	a.RequestHeader.UsernameHeaders = []string{"X-Remote-User"}
	a.RequestHeader.UIDHeaders = []string{"X-Remote-Uid"}
	a.RequestHeader.GroupHeaders = []string{"X-Remote-Group"}
	a.RequestHeader.ExtraHeaderPrefixes = []string{"X-Remote-Extra-"}
	a.RequestHeader.AllowedNames = []string{frontProxyName}
	o.ServiceAccountSigningKeyFile = id.path("service-account.key")
	o.ProxyClientCertFile = id.path("front-proxy-client.crt")
	o.ProxyClientKeyFile = id.path("front-proxy-client.key")

	if cfg.Options.AuthorizationConfig != "" {
		o.Authorization.AuthorizationConfigurationFile = cfg.Options.AuthorizationConfig
	} else {
		o.Authorization.Modes = []string{"RBAC"}
	}

	admission := o.Admission.GenericAdmission
	admission.DefaultOffPlugins = sample.DefaultOffAdmissionPlugins()
	admission.EnablePlugins = cfg.Options.EnableAdmissionPlugins
	admission.DisablePlugins = cfg.Options.DisableAdmissionPlugins
	admission.ConfigFile = cfg.Options.AdmissionControlConfig

	o.Audit.PolicyFile = cfg.Options.AuditPolicyFile
	o.Audit.LogOptions.Path = cfg.Options.AuditLogPath
	o.Audit.WebhookOptions.ConfigFile = cfg.Options.AuditWebhookConfigFile
	for k, v := range cfg.Options.RuntimeConfig {
		o.APIEnablement.RuntimeConfig[k] = v
	}

	completed, err := o.Complete(ctx, nil, nil)
	if err != nil {
		return completed, fmt.Errorf("complete API server options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return completed, fmt.Errorf("validate API server options: %w", utilerrors.NewAggregate(errs))
	}
	return completed, nil
}
