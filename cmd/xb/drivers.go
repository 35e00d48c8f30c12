package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/azurelog"
	"github.com/xbernetes/xbernetes/internal/journal/filelog"
	"github.com/xbernetes/xbernetes/internal/journal/gcslog"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/journal/natslog"
	"github.com/xbernetes/xbernetes/internal/journal/natslog/embedded"
	"github.com/xbernetes/xbernetes/internal/journal/s3log"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/notify/natsnotify"
	"github.com/xbernetes/xbernetes/internal/notify/sqlnotify"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// driver is a kind of journal, known by the scheme of its URL.
type driver struct {
	scheme string
	form   string // how its URL is written
	more   string // what the help of --journal adds to form
	remote bool   // a round trip costs much: compress, and weigh records by their number

	// check refuses a URL that cannot be meant, before anything is opened; nil: open does.
	check func(u *url.URL) error
	// open opens the journal at u, and creates it if it is not there.
	open func(ctx context.Context, u *url.URL, opts openOptions) (journal.Store, error)
	// openReadOnly opens a journal that must be there, and changes nothing in it;
	// nil: no other process can read it.
	openReadOnly func(ctx context.Context, u *url.URL, log *slog.Logger) (journal.Store, error)
	// hints returns what wakes servers by means of the journal's own service; nil: the
	// service has no notifications.
	hints func(u *url.URL, id journal.ID, log *slog.Logger) (notify.Source, error)
	// salvage yields every whole record of a journal that is too damaged to be
	// opened; nil: each record is an object of its own, and none hides another.
	salvage func(u *url.URL, yield func(slot journal.Slot, rec []byte, gap string) error) error
}

type openOptions struct {
	log        *slog.Logger
	acceptLoss bool // of a file journal's end
}

// drivers are all kinds of journals. A new one is an entry here.
var drivers = []driver{
	{
		scheme: "file", form: "file:///DIR",
		check: checkDirectory,
		open: func(ctx context.Context, u *url.URL, opts openOptions) (journal.Store, error) {
			privatefile.Warn(opts.log, u.Path)
			return filelog.Open(ctx, u.Path, filelog.Options{Logger: opts.log, AcceptLoss: opts.acceptLoss})
		},
		openReadOnly: func(ctx context.Context, u *url.URL, _ *slog.Logger) (journal.Store, error) {
			return filelog.OpenReadOnly(ctx, u.Path)
		},
		salvage: func(u *url.URL, yield func(journal.Slot, []byte, string) error) error {
			return filelog.Salvage(u.Path, yield)
		},
	},
	{
		scheme: "s3", form: "s3://BUCKET/PREFIX", more: "?region=…&endpoint=…&profile=…", remote: true,
		open: func(ctx context.Context, u *url.URL, opts openOptions) (journal.Store, error) {
			return openS3(ctx, u, opts.log, false)
		},
		openReadOnly: func(ctx context.Context, u *url.URL, log *slog.Logger) (journal.Store, error) {
			return openS3(ctx, u, log, true)
		},
	},
	{
		scheme: "gs", form: "gs://BUCKET/PREFIX", more: "?endpoint=…&anonymous=…", remote: true,
		check: func(u *url.URL) error {
			_, err := gcslog.ParseURL(u)
			return err
		},
		open: func(ctx context.Context, u *url.URL, opts openOptions) (journal.Store, error) {
			return openGCS(ctx, u, opts.log, false)
		},
		openReadOnly: func(ctx context.Context, u *url.URL, log *slog.Logger) (journal.Store, error) {
			return openGCS(ctx, u, log, true)
		},
	},
	{
		scheme: "azblob", form: "azblob://ACCOUNT/CONTAINER/PREFIX", more: "?endpoint=…", remote: true,
		check: func(u *url.URL) error {
			_, err := azurelog.ParseURL(u)
			return err
		},
		open: func(ctx context.Context, u *url.URL, opts openOptions) (journal.Store, error) {
			return openAzure(ctx, u, opts.log, false)
		},
		openReadOnly: func(ctx context.Context, u *url.URL, log *slog.Logger) (journal.Store, error) {
			return openAzure(ctx, u, log, true)
		},
	},
	{
		scheme: "postgres", form: "postgres://USER@HOST/DATABASE", more: "?table=…", remote: true,
		check: func(u *url.URL) error {
			_, err := sqllog.ParseURL(u)
			return err
		},
		open: func(ctx context.Context, u *url.URL, opts openOptions) (journal.Store, error) {
			return openSQL(ctx, u, opts.log, false)
		},
		openReadOnly: func(ctx context.Context, u *url.URL, log *slog.Logger) (journal.Store, error) {
			return openSQL(ctx, u, log, true)
		},
		hints: func(u *url.URL, id journal.ID, log *slog.Logger) (notify.Source, error) {
			cfg, err := sqllog.ParseURL(u)
			if err != nil {
				return nil, err
			}
			return sqlnotify.New(cfg.Pool.ConnConfig, id, log), nil
		},
	},
	{
		scheme: "nats", form: "nats://USER@HOST/NAME", more: "?synced=true&replicas=…&creds=…", remote: true,
		check: func(u *url.URL) error {
			_, err := natslog.ParseURL(u)
			return err
		},
		open: func(ctx context.Context, u *url.URL, opts openOptions) (journal.Store, error) {
			return openNATS(ctx, u, opts.log, false)
		},
		openReadOnly: func(ctx context.Context, u *url.URL, log *slog.Logger) (journal.Store, error) {
			return openNATS(ctx, u, log, true)
		},
		hints: func(u *url.URL, id journal.ID, log *slog.Logger) (notify.Source, error) {
			cfg, err := natslog.ParseURL(u)
			if err != nil {
				return nil, err
			}
			return natsnotify.New(natsnotify.Config{Connect: cfg.Connect, Subject: cfg.HintSubject(id), Logger: log}), nil
		},
	},
	{
		scheme: "nats+embedded", form: "nats+embedded:///DIR",
		check: checkDirectory,
		open: func(ctx context.Context, u *url.URL, opts openOptions) (journal.Store, error) {
			privatefile.Warn(opts.log, u.Path)
			return embedded.Open(ctx, u.Path, embedded.Options{Logger: opts.log})
		},
		openReadOnly: func(ctx context.Context, u *url.URL, log *slog.Logger) (journal.Store, error) {
			return embedded.Open(ctx, u.Path, embedded.Options{Logger: log, ReadOnly: true})
		},
	},
	{
		scheme: "mem", form: "mem:", more: " (lost when the process ends)",
		open: func(context.Context, *url.URL, openOptions) (journal.Store, error) {
			return memlog.New(memlog.Options{}).Open(), nil
		},
	},
}

// checkDirectory refuses the URL of a directory that names none.
func checkDirectory(u *url.URL) error {
	if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
		return fmt.Errorf("journal URL %q does not name an absolute directory; want %s:///DIR", u.Redacted(), u.Scheme)
	}
	return nil
}

func openS3(ctx context.Context, u *url.URL, log *slog.Logger, readOnly bool) (journal.Store, error) {
	cfg, err := s3log.ParseURL(u)
	if err != nil {
		return nil, err
	}
	cfg.Logger, cfg.ReadOnly = log, readOnly
	return s3log.Open(ctx, cfg)
}

func openGCS(ctx context.Context, u *url.URL, log *slog.Logger, readOnly bool) (journal.Store, error) {
	cfg, err := gcslog.ParseURL(u)
	if err != nil {
		return nil, err
	}
	cfg.Logger, cfg.ReadOnly = log, readOnly
	return gcslog.Open(ctx, cfg)
}

func openAzure(ctx context.Context, u *url.URL, log *slog.Logger, readOnly bool) (journal.Store, error) {
	cfg, err := azurelog.ParseURL(u)
	if err != nil {
		return nil, err
	}
	cfg.Logger, cfg.ReadOnly = log, readOnly
	return azurelog.Open(ctx, cfg)
}

func openSQL(ctx context.Context, u *url.URL, log *slog.Logger, readOnly bool) (journal.Store, error) {
	cfg, err := sqllog.ParseURL(u)
	if err != nil {
		return nil, err
	}
	cfg.Logger, cfg.ReadOnly = log, readOnly
	return sqllog.Open(ctx, cfg)
}

func openNATS(ctx context.Context, u *url.URL, log *slog.Logger, readOnly bool) (journal.Store, error) {
	cfg, err := natslog.ParseURL(u)
	if err != nil {
		return nil, err
	}
	cfg.Logger, cfg.ReadOnly = log, readOnly
	return natslog.Open(ctx, cfg)
}
