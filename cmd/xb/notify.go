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
// what the URL in raw names or the journal's own service has, with polling behind it,
// or polling alone.
func newNotifier(ctx context.Context, raw, journalURL string, store openJournal, poll time.Duration, log *slog.Logger) (notify.Notifier, error) {
	d, u, err := parseJournalURL(journalURL)
	if err != nil {
		return nil, err
	}
	var source notify.Source
	switch {
	case raw != "":
		source, err = awsSource(ctx, raw, u, store, log)
	case d.hints != nil:
		source, err = d.hints(u, store.Info().ID, log)
	default:
		return notify.NewPolling(poll, 10*poll), nil
	}
	if err != nil {
		return nil, err
	}
	return notify.NewWoken(source, poll, 10*poll, log), nil
}

// awsSource is the topic and the queue that raw names.
func awsSource(ctx context.Context, raw string, journal *url.URL, store openJournal, log *slog.Logger) (notify.Source, error) {
	cfg, err := snsnotify.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	if !store.remote {
		return nil, fmt.Errorf("--notify is for journals that several servers reach; journal %s lives in one process", journalName(journal.String()))
	}
	cfg.Journal, cfg.Logger = store.Info().ID, log
	if journal.Scheme == "s3" {
		cfg.Bucket, cfg.Prefix = journal.Host, strings.Trim(journal.Path, "/")
	}
	return snsnotify.New(ctx, cfg)
}
