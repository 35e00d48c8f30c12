package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// openJournal is a journal that is open, with what a replica should know of the
// service it lives in.
type openJournal struct {
	journal.Store
	remote bool // as the driver's
}

// openStore opens the journal that rawURL names, and creates it if it is not there.
func openStore(ctx context.Context, rawURL string, opts openOptions) (openJournal, error) {
	d, u, err := parseJournalURL(rawURL)
	if err != nil {
		return openJournal{}, err
	}
	store, err := d.open(ctx, u, opts)
	return openJournal{store, d.remote}, err
}

// openReadOnly opens a journal that must exist, and changes nothing in it.
func openReadOnly(ctx context.Context, rawURL string, log *slog.Logger) (openJournal, error) {
	d, u, err := parseJournalURL(rawURL)
	if err != nil {
		return openJournal{}, err
	}
	if d.openReadOnly == nil {
		return openJournal{}, fmt.Errorf("journal %s: lives in one process only; there is nothing to read from outside", u.Scheme)
	}
	store, err := d.openReadOnly(ctx, u, log)
	return openJournal{store, d.remote}, err
}

// journalName is a journal's URL as messages to people have it: without options.
func journalName(rawURL string) string {
	_, u, err := parseJournalURL(rawURL)
	if err != nil {
		return "" // this journal was not opened by a URL
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// parseJournalURL returns the driver that raw names. Its errors repeat no password.
func parseJournalURL(raw string) (driver, *url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return driver{}, nil, fmt.Errorf("the journal URL is malformed; want %s", journalForms())
	}
	if u.Scheme == "" {
		return driver{}, nil, fmt.Errorf("journal URL %q has no scheme; want %s", raw, journalForms())
	}
	i := slices.IndexFunc(drivers, func(d driver) bool { return d.scheme == u.Scheme })
	if i < 0 {
		return driver{}, nil, fmt.Errorf("journal URL has the scheme %q, which this build does not know; want %s", u.Scheme, journalForms())
	}
	if d := drivers[i]; d.check != nil {
		err = d.check(u)
	}
	return drivers[i], u, err
}

// journalForms says how URLs of journals are written: "A, B or C".
func journalForms() string {
	var forms []string
	for _, d := range drivers {
		forms = append(forms, d.form)
	}
	last := len(forms) - 1
	return strings.Join(forms[:last], ", ") + " or " + forms[last]
}

// journalHelp is the help of --journal. Its lines are not indented: those that are too
// long for the terminal would be broken after the indentation.
func journalHelp() string {
	help := "where the state lives:"
	for _, d := range drivers {
		help += "\n" + d.form + d.more
	}
	return help
}
