// Package s3log keeps a journal in an S3 bucket, created by PUT with
// If-None-Match: *. README.md says how to reach one, and what a party needs. It
// knows nothing of slots: that is package objectlog.
package s3log

import (
	"context"
	"fmt"
	"net/url"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3bucket"
)

// Config says where a journal lives and how to reach it.
type Config = s3bucket.Config

// ParseURL reads s3://bucket/prefix?region=…&endpoint=…&path-style=…&profile=….
func ParseURL(u *url.URL) (Config, error) { return s3bucket.ParseURL(u) }

// Open opens the journal at cfg, and creates it where there is none, unless
// cfg is read-only. It refuses a bucket whose settings would destroy the journal. Errors are
// those of objectlog.Open.
func Open(ctx context.Context, cfg Config) (*objectlog.Log, error) {
	store, err := s3bucket.Open(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", cfg.Location(), err)
	}
	if !cfg.ReadOnly {
		costly, err := store.CheckSettings(ctx)
		if err != nil {
			store.Close()
			return nil, fmt.Errorf("open journal %s: %w", cfg.Location(), err)
		}
		if cfg.Logger != nil {
			for _, setting := range costly {
				cfg.Logger.Warn("a setting of the bucket costs money", "setting", setting)
			}
		}
	}
	return objectlog.Open(ctx, store, objectlog.Options{RequestTimeout: bucket.Timeout(cfg.RequestTimeout), ReadOnly: cfg.ReadOnly, Logger: cfg.Logger})
}
