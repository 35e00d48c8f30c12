package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/journal/s3log"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

const journalHelp = `where the state lives:
  file:///DIR
  s3://BUCKET/PREFIX?region=…&endpoint=…&profile=…
  mem: (lost when the process ends)
`

// A backend is a journal that is open, with what a replica should know of the
// service it lives in.
type backend struct {
	journal.Store
	remote bool // a round trip costs much: compress, weigh records
}

// openStore opens the journal that rawURL names, and creates it if it is not there.
func openStore(ctx context.Context, rawURL string, log *slog.Logger) (backend, error) {
	return openStoreAs(ctx, rawURL, log, filelog.Options{})
}

// openStoreAs is openStore, with options for a file journal.
func openStoreAs(ctx context.Context, rawURL string, log *slog.Logger, file filelog.Options) (backend, error) {
	u, err := parseJournalURL(rawURL)
	if err != nil {
		return backend{}, err
	}
	switch u.Scheme {
	case "file":
		complainOfExposed(log, u.Path)
		file.Logger = log
		store, err := filelog.Open(ctx, u.Path, file)
		return backend{Store: store}, err
	case "s3":
		cfg, err := s3log.ParseURL(u)
		if err != nil {
			return backend{}, err
		}
		cfg.Logger = log
		store, err := s3log.Open(ctx, cfg)
		return backend{Store: store, remote: true}, err
	default: // mem, see parseJournalURL
		return backend{Store: memlog.New(memlog.Options{}).Open()}, nil
	}
}

// openReadOnly opens a journal that must exist, and changes nothing in it.
func openReadOnly(ctx context.Context, rawURL string, log *slog.Logger) (backend, error) {
	u, err := parseJournalURL(rawURL)
	if err != nil {
		return backend{}, err
	}
	switch u.Scheme {
	case "file":
		store, err := filelog.OpenReadOnly(ctx, u.Path)
		return backend{Store: store}, err
	case "s3":
		cfg, err := s3log.ParseURL(u)
		if err != nil {
			return backend{}, err
		}
		cfg.Logger, cfg.ReadOnly = log, true
		store, err := s3log.Open(ctx, cfg)
		return backend{Store: store, remote: true}, err
	default:
		return backend{}, fmt.Errorf("journal %s lives in one process only; there is nothing to read from outside", u.Scheme+":")
	}
}

// journalName is a journal's URL as people write it in messages: the place alone.
func journalName(rawURL string) string {
	u, err := parseJournalURL(rawURL)
	if err != nil {
		return "" // the journal was not opened by it then
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

func parseJournalURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the journal URL is malformed; want file:///DIR, s3://BUCKET/PREFIX or mem:")
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
			return nil, fmt.Errorf("journal URL %q does not name an absolute directory; want file:///DIR", u.Redacted())
		}
	case "s3", "mem":
	case "":
		return nil, fmt.Errorf("journal URL %q has no scheme; want file:///DIR, s3://BUCKET/PREFIX or mem:", raw)
	default:
		return nil, fmt.Errorf("journal URL has the scheme %q, which this build does not know; want file:///DIR, s3://BUCKET/PREFIX or mem:", u.Scheme)
	}
	return u, nil
}

// complainOfExposed says so if other users of this machine can do more with a
// folder of ours than they should.
func complainOfExposed(log *slog.Logger, dir string) {
	if why := privatefile.Exposed(dir); why != "" {
		log.Warn("keys and data are in a folder that is open to other users; run chmod 700 on it, or choose another", "folder", dir, "reason", why)
	}
}

// defaultDataDir is where one user's server keeps its things: below
// $XDG_DATA_HOME, or ~/.local/share.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "xbernetes")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "xbernetes")
}
