// Package identity finds or makes the certificates of a gateway: the one that it serves
// with, and the authorities by which it knows its callers. It reads no request.
package identity

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// Config names the files that the gateway is given. All fields but DataDir may be empty.
type Config struct {
	DataDir           string   // where the gateway keeps the files that it makes
	SANs              []string // further names and addresses for the certificate that it makes
	CertFile, KeyFile string   // to serve with, PEM; if empty, the gateway makes a certificate
	ClientCAFile      string   // the CA of callers' certificates, PEM
	// Authentication is the kubeconfig of a Kubernetes API that reviews tokens, and what
	// callers may do at the gateway itself.
	Authentication string
}

// Identity is what the gateway serves with, and how it knows its callers.
type Identity struct {
	Cert          dynamiccertificates.CertKeyContentProvider
	ClientCA      dynamiccertificates.CAContentProvider // nil: no caller has a certificate
	Authenticator authenticator.Request
	Authorizer    authorizer.UnconditionalAuthorizer
	Kubeconfig    string // the file that was written for the administrator; may be empty

	lock *os.File // of the data directory; nil if that is not used
}

// Open returns the identity of a gateway that listens at addr. If the gateway is given no
// certificate, or no way to know its callers, Open makes certificates in the data
// directory. No other gateway can then use that directory until Close.
func Open(cfg Config, addr net.Addr, log *slog.Logger) (id *Identity, err error) {
	id = &Identity{}
	defer func(unfinished *Identity) {
		if err != nil {
			unfinished.Close()
		}
	}(id)
	knowsCallers := cfg.ClientCAFile != "" || cfg.Authentication != ""
	own := &Own{}
	if cfg.CertFile == "" || !knowsCallers {
		if id.lock, err = cfg.claimDataDir(log); err != nil {
			return nil, err
		}
		if own, err = LoadOwn(filepath.Join(cfg.DataDir, "pki"), addr, cfg.SANs); err != nil {
			return nil, err
		}
	}
	cert, key, clientCA := cfg.CertFile, cfg.KeyFile, cfg.ClientCAFile
	if cert == "" {
		cert, key = own.Serving.CertFile, own.Serving.KeyFile
	}
	if id.Cert, err = dynamiccertificates.NewDynamicServingContentFromFiles("serving", cert, key); err != nil {
		return nil, fmt.Errorf("load serving certificate: %w", err)
	}
	if !knowsCallers {
		clientCA = own.CA.CertFile
		id.Kubeconfig = filepath.Join(cfg.DataDir, "kubeconfig")
		if err := cfg.writeKubeconfig(id.Kubeconfig, addr, own); err != nil {
			return nil, err
		}
	}
	if clientCA != "" {
		if id.ClientCA, err = dynamiccertificates.NewDynamicCAContentFromFile("client-ca", clientCA); err != nil {
			return nil, fmt.Errorf("load client CA: %w", err)
		}
	}
	return id, id.know(cfg.Authentication)
}

// Close lets another gateway use the data directory.
func (id *Identity) Close() {
	if id.lock != nil {
		_ = id.lock.Close() // nothing was written to it
	}
}

// claimDataDir keeps other gateways out of the data directory, which holds this gateway's
// kubeconfig. It makes the directory's name absolute.
func (cfg *Config) claimDataDir(log *slog.Logger) (lock *os.File, err error) {
	if cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
		return nil, err
	}
	if lock, err = privatefile.Claim(cfg.DataDir, "gateway"); err == nil {
		privatefile.Warn(log, cfg.DataDir)
	}
	return lock, err
}

func (cfg *Config) writeKubeconfig(file string, addr net.Addr, own *Own) error {
	ca := own.CA.CertPEM
	if cfg.CertFile != "" {
		var err error
		if ca, err = os.ReadFile(cfg.CertFile); err != nil {
			return fmt.Errorf("write kubeconfig: %w", err)
		}
	}
	_, port, _ := net.SplitHostPort(addr.String())
	return kubeconfig.Write(file, kubeconfig.Access{
		Name: "gateway", URL: "https://" + net.JoinHostPort("127.0.0.1", port),
		CA: ca, Cert: own.Admin.CertPEM, Key: own.Admin.KeyPEM,
	})
}

// know sets how callers are known, by certificates, and by tokens if a Kubernetes API
// reviews them, and who decides what callers may do at the gateway itself.
func (id *Identity) know(api string) error {
	backoff := &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 3}
	authn := authenticatorfactory.DelegatingAuthenticatorConfig{
		ClientCertificateCAContentProvider: id.ClientCA,
		CacheTTL:                           10 * time.Second,
		TokenAccessReviewTimeout:           10 * time.Second,
		WebhookRetryBackoff:                backoff,
	}
	masters := authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
	id.Authorizer = masters
	if api != "" {
		config, err := clientcmd.BuildConfigFromFlags("", api)
		if err != nil {
			return fmt.Errorf("read --authentication-kubeconfig %s: %w", api, err)
		}
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("read --authentication-kubeconfig %s: %w", api, err)
		}
		authn.TokenAccessReviewClient = client.AuthenticationV1()
		delegated, err := authorizerfactory.DelegatingAuthorizerConfig{
			SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: 10 * time.Second, DenyCacheTTL: 5 * time.Second, WebhookRetryBackoff: backoff,
		}.New()
		if err != nil {
			return err
		}
		if id.Authorizer, err = union.New(union.NamedAuthorizer{AuthorizerName: "masters", Authorizer: masters}, union.NamedAuthorizer{AuthorizerName: "delegated", Authorizer: delegated}); err != nil {
			return err
		}
	}
	var err error
	id.Authenticator, _, err = authn.New()
	return err
}
