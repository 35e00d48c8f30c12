// Package azurelog keeps a journal in a container of Azure Blob Storage, created by
// Put Blob with If-None-Match: *. README.md says how to reach one, and what a party
// needs. It knows nothing of slots: that is package objectlog.
package azurelog

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// Config says where a journal lives and how to reach it. Account and Container are
// required; the zero value of every other field is useful.
type Config struct {
	// Account is the storage account, and Container one of its containers, which must
	// exist.
	Account, Container string
	// Prefix comes before every name, without slashes at its ends. Several
	// journals share a container under different prefixes. None of them may be
	// inside another.
	Prefix bucket.Prefix
	// Endpoint is the base URL of a store other than the account's in Azure's public
	// cloud. The account is in its host name, or else becomes the first part of the
	// path, as emulators have it. Empty: https://ACCOUNT.blob.core.windows.net.
	Endpoint string
	// Anonymous sends no credentials.
	Anonymous bool
	// Key is the account's shared key, in base64. Empty: the credentials are those of
	// the environment, as README.md lists them.
	Key string

	// RequestTimeout bounds one request, as bucket.Timeout.
	RequestTimeout time.Duration
	// ReadOnly opens a journal that must exist, and changes nothing.
	ReadOnly bool
	// Logger is told of each retry, and why. nil: nothing is logged.
	Logger *slog.Logger
}

const (
	form           = "azblob://ACCOUNT/CONTAINER/PREFIX"
	credentialsAre = "AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, AZURE_STORAGE_CONNECTION_STRING, or what Azure's libraries find (az login, a managed identity)"
)

var (
	accountPattern   = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	containerPattern = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9]){2,62}$`)
)

// ParseURL reads azblob://account/container/prefix?endpoint=…&anonymous=…. A URL that
// carries a secret is refused, and the error does not repeat it.
func ParseURL(u *url.URL) (Config, error) {
	place, err := bucket.ParseURL(u, form, credentialsAre)
	if err != nil {
		return Config{}, err
	}
	container, prefix, _ := strings.Cut(place.Path, "/")
	cfg := Config{Account: place.Host, Container: container, Prefix: bucket.Prefix(prefix), Endpoint: place.Endpoint, Anonymous: place.Anonymous}
	return cfg, cfg.validate()
}

// validate checks what can be checked without the store.
func (c Config) validate() error {
	if !accountPattern.MatchString(c.Account) {
		return fmt.Errorf("storage account %q is not valid; want %s, where an account has 3 to 24 of a-z and 0-9", c.Account, form)
	}
	if !containerPattern.MatchString(c.Container) || len(c.Container) > 63 {
		return fmt.Errorf("container name %q is not valid; want %s, where a container has 3 to 63 of a-z, 0-9 and single hyphens", c.Container, form)
	}
	if err := c.Prefix.Validate(); err != nil {
		return err
	}
	if c.Endpoint == "" {
		return nil
	}
	return bucket.CheckEndpoint(c.Endpoint, c.Anonymous)
}

// location is where the objects are, as people write it.
func (c Config) location() string {
	return c.Prefix.Below("azblob://" + c.Account + "/" + c.Container)
}

// store names the store for messages.
func (c Config) store() string {
	if c.Endpoint != "" {
		return c.Endpoint
	}
	return "Azure Blob Storage"
}

// url is the address of the container. The configuration is valid.
func (c Config) url() string {
	if c.Endpoint == "" {
		return "https://" + c.Account + ".blob.core.windows.net/" + c.Container
	}
	base := strings.TrimSuffix(c.Endpoint, "/")
	if _, host, _ := strings.Cut(base, "://"); strings.HasPrefix(host, c.Account+".") {
		return base + "/" + c.Container
	}
	return base + "/" + c.Account + "/" + c.Container
}

// Open opens the journal at cfg, and creates it where there is none, unless cfg is
// read-only. It refuses a container whose settings would keep the journal from being
// trimmed. Errors are those of objectlog.Open.
func Open(ctx context.Context, cfg Config) (*objectlog.Log, error) {
	s, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", cfg.location(), err)
	}
	if !cfg.ReadOnly {
		if err := s.checkSettings(ctx); err != nil {
			s.Close()
			return nil, fmt.Errorf("open journal %s: %w", cfg.location(), err)
		}
	}
	return objectlog.Open(ctx, s, objectlog.Options{RequestTimeout: s.timeout, ReadOnly: cfg.ReadOnly, Logger: cfg.Logger})
}
