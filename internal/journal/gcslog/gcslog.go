// Package gcslog keeps a journal in a bucket of Google Cloud Storage, created by
// uploads with ifGenerationMatch=0. README.md says how to reach one, and what a
// party needs. It knows nothing of slots: that is package objectlog.
package gcslog

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

// Config says where a journal lives and how to reach it. Bucket is required;
// the zero value of every other field is useful.
type Config struct {
	// Bucket holds the journal. It must exist.
	Bucket string
	// Prefix comes before every name, without slashes at its ends. Several
	// journals share a bucket under different prefixes. None of them may be
	// inside another.
	Prefix bucket.Prefix
	// Endpoint is the base URL of a store other than Google's. Empty: Google's.
	Endpoint string
	// Anonymous sends no credentials, for emulators. Otherwise they are those that
	// Google's libraries find (GOOGLE_APPLICATION_CREDENTIALS, gcloud's own, the
	// metadata server).
	Anonymous bool

	// RequestTimeout bounds one request, as bucket.Timeout.
	RequestTimeout time.Duration
	// ReadOnly opens a journal that must exist, and changes nothing.
	ReadOnly bool
	// Logger is told of each retry, and why. nil: nothing is logged.
	Logger *slog.Logger
}

const (
	form           = "gs://BUCKET/PREFIX"
	credentialsAre = "GOOGLE_APPLICATION_CREDENTIALS, or by gcloud auth application-default login"
)

var bucketPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`)

// ParseURL reads gs://bucket/prefix?endpoint=…&anonymous=…. A URL that carries a
// secret is refused, and the error does not repeat it.
func ParseURL(u *url.URL) (Config, error) {
	place, err := bucket.ParseURL(u, form, credentialsAre)
	if err != nil {
		return Config{}, err
	}
	cfg := Config{Bucket: place.Host, Prefix: bucket.Prefix(place.Path), Endpoint: place.Endpoint, Anonymous: place.Anonymous}
	return cfg, cfg.validate()
}

// validate checks what can be checked without the store.
func (c Config) validate() error {
	if !bucketPattern.MatchString(c.Bucket) || strings.HasPrefix(c.Bucket, "goog") {
		return fmt.Errorf("bucket name %q is not valid; a name has 3 to 222 of a-z, 0-9, dot, hyphen and underscore", c.Bucket)
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
func (c Config) location() string { return c.Prefix.Below("gs://" + c.Bucket) }

// store names the store for messages.
func (c Config) store() string {
	if c.Endpoint != "" {
		return c.Endpoint
	}
	return "Google Cloud Storage"
}

// Open opens the journal at cfg, and creates it where there is none, unless
// cfg is read-only. Errors are those of objectlog.Open.
func Open(ctx context.Context, cfg Config) (*objectlog.Log, error) {
	s, err := open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", cfg.location(), err)
	}
	return objectlog.Open(ctx, s, objectlog.Options{RequestTimeout: s.timeout, ReadOnly: cfg.ReadOnly, Logger: cfg.Logger})
}
