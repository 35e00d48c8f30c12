package controlplane

import (
	"context"
	"fmt"
	"maps"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	apiserverapiv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	apiserverfeatures "k8s.io/apiserver/pkg/features"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	sample "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic/server"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"

	"github.com/xbernetes/xbernetes/internal/controlplane/identity"
	"github.com/xbernetes/xbernetes/internal/controlplane/transaction"
	"github.com/xbernetes/xbernetes/internal/controlplane/transaction/upcoming"
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
	maps.Copy(gates, o.FeatureGates)
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	return nil
}

// serverOptions translates the configuration into upstream's options, and has
// them checked.
func serverOptions(ctx context.Context, cfg Config, p parts) (options.CompletedOptions, error) {
	o := options.NewOptions()
	o.Metrics = nil // it has nothing to say, and logs an error for want of a label list
	setStore(o, cfg)
	setServing(o, cfg, p)
	setAuthentication(o, cfg.Options, p)
	if cfg.Options.AuthorizationConfig != "" {
		o.Authorization.AuthorizationConfigurationFile = cfg.Options.AuthorizationConfig
	} else {
		o.Authorization.Modes = []string{"RBAC"}
	}
	if err := setAdmission(o.Admission.GenericAdmission, cfg.Options, p.upcoming); err != nil {
		return options.CompletedOptions{}, err
	}
	o.Audit.PolicyFile = cfg.Options.AuditPolicyFile
	o.Audit.LogOptions.Path = cfg.Options.AuditLogPath
	o.Audit.WebhookOptions.ConfigFile = cfg.Options.AuditWebhookConfigFile
	maps.Copy(o.APIEnablement.RuntimeConfig, cfg.Options.RuntimeConfig)

	completed, err := o.Complete(ctx, nil, nil)
	if err != nil {
		return completed, fmt.Errorf("complete API server options: %w", err)
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return completed, fmt.Errorf("validate API server options: %w", utilerrors.NewAggregate(errs))
	}
	return completed, nil
}

// setStore sets where objects are kept.
func setStore(o *options.Options, cfg Config) {
	o.Etcd.StorageConfig.Prefix = cfg.Etcd.Prefix
	o.Etcd.StorageConfig.Transport = cfg.Etcd.transport()
	o.Etcd.SkipHealthEndpoints = cfg.Etcd.Away != nil // package away has its own
	o.Etcd.EncryptionProviderConfigFilepath = cfg.Options.EncryptionProviderConfig
	o.Etcd.EncryptionProviderConfigAutomaticReload = cfg.Options.EncryptionProviderConfig != ""
	o.Etcd.StorageConfig.CountMetricPollPeriod = cfg.Options.StorageCountPeriod
	o.EventTTL = cfg.Options.EventTTL
}

// setServing sets where requests are served.
func setServing(o *options.Options, cfg Config, p parts) {
	o.SecureServing.Listener = door.Limit(p.ln, cfg.Options.MaxConnections, cfg.Logger)
	o.SecureServing.BindPort = p.ln.Addr().(*net.TCPAddr).Port // only checked: the listener counts
	o.SecureServing.ServerCert.CertKey.CertFile = p.id.Path("serving.crt")
	o.SecureServing.ServerCert.CertKey.KeyFile = p.id.Path("serving.key")
	o.GenericServerRunOptions.AdvertiseAddress = advertisedIP(p.ln.Addr())
	o.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = stopGrace / 2
}

// setAuthentication sets whose credentials are accepted, and the server's own for
// aggregated API servers.
func setAuthentication(o *options.Options, given Options, p parts) {
	a := o.Authentication
	a.APIAudiences = []string{given.ServiceAccountIssuer}
	a.ClientCert.CAContentProvider = clientCAs{p.roster}
	a.ServiceAccounts.Issuers = []string{given.ServiceAccountIssuer}
	a.ServiceAccounts.ExternalPublicKeysGetter = tokenKeys{p.roster}
	a.ServiceAccounts.OptionalTokenGetter = p.tokens.bind
	a.AuthenticationConfigFile = given.AuthenticationConfig
	a.RequestHeader.ClientCAFile = p.id.Path("front-proxy-ca.crt")
	a.RequestHeader.UsernameHeaders = []string{"X-Remote-User"}
	a.RequestHeader.UIDHeaders = []string{"X-Remote-Uid"}
	a.RequestHeader.GroupHeaders = []string{"X-Remote-Group"}
	a.RequestHeader.ExtraHeaderPrefixes = []string{"X-Remote-Extra-"}
	a.RequestHeader.AllowedNames = []string{identity.FrontProxyName}
	o.ServiceAccountSigningKeyFile = p.id.Path("service-account.key")
	o.ProxyClientCertFile = p.id.Path("front-proxy-client.crt")
	o.ProxyClientKeyFile = p.id.Path("front-proxy-client.key")
}

// setAdmission sets the admission plugins.
func setAdmission(a *genericoptions.AdmissionOptions, given Options, namespaces *upcoming.Namespaces) error {
	a.DefaultOffPlugins = sample.DefaultOffAdmissionPlugins()
	a.EnablePlugins = given.EnableAdmissionPlugins
	a.DisablePlugins = given.DisableAdmissionPlugins
	a.ConfigFile = given.AdmissionControlConfig
	limits, err := quotaLimits(given.AdmissionControlConfig)
	if err != nil {
		return err
	}
	a.Decorators = append(a.Decorators, transaction.Admission{Quota: limits, Unlimited: quotainstall.DefaultIgnoredResources(), Upcoming: namespaces})
	return nil
}

// quotaLimits reads the configuration of the plugin ResourceQuota.
func quotaLimits(file string) (*resourcequotaapi.Configuration, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiserverapi.AddToScheme, apiserverapiv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	plugins, err := admission.ReadAdmissionConfiguration([]string{resourcequota.PluginName}, file, scheme)
	if err != nil {
		return nil, fmt.Errorf("read the admission configuration: %w", err)
	}
	config, err := plugins.ConfigFor(resourcequota.PluginName)
	if err != nil {
		return nil, fmt.Errorf("read the admission configuration of %s: %w", resourcequota.PluginName, err)
	}
	return resourcequota.LoadConfiguration(config)
}
