package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/notify/snsnotify"
)

// newNotifier returns what tells the replica of a journal that others wrote to it:
// polling, or what the URL in raw names with polling behind it.
func newNotifier(ctx context.Context, raw, journalURL string, store openJournal, poll time.Duration, log *slog.Logger) (notify.Notifier, error) {
	if raw == "" {
		return notify.NewPolling(poll, 10*poll), nil
	}
	cfg, err := snsnotify.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	if !store.remote {
		return nil, fmt.Errorf("--notify is for journals that several servers reach; journal %s lives in one process", journalName(journalURL))
	}
	cfg.Journal, cfg.Logger = store.Info().ID, log
	if u, err := url.Parse(journalURL); err == nil && u.Scheme == "s3" {
		cfg.Bucket, cfg.Prefix = u.Host, strings.Trim(u.Path, "/")
	}
	source, err := snsnotify.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return notify.NewWoken(source, poll, 10*poll, log), nil
}
