package sqllog

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says where a journal lives and how to reach it.
type Config struct {
	// Pool is how to connect. ParseURL makes it.
	Pool *pgxpool.Config
	// Table is what the names of the journal's tables begin with: lower-case
	// letters, digits and _, 40 at most. The default is xbernetes.
	Table string
	// ReadOnly opens a journal that must exist, and changes nothing.
	ReadOnly bool
	// Logger gets what people should know; nil: nobody.
	Logger *slog.Logger
}

const defaultTable = "xbernetes"

var tableName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

var (
	errMalformed = errors.New("the journal URL is malformed; want postgres://USER@HOST:PORT/DATABASE?table=NAME, with PostgreSQL's own parameters")
	errPassword  = errors.New("the journal URL has a password in it, which other users of this machine can see; put it into the file ~/.pgpass, or into another that PGPASSFILE names")
)

// ParseURL reads postgres://USER@HOST:PORT/DATABASE?table=…; all other parameters are
// those of PostgreSQL's own URLs. A password in the URL is refused: other users of the
// machine see command lines. To any host that is not this machine, TLS is verified
// unless the URL has an sslmode.
func ParseURL(u *url.URL) (Config, error) {
	if _, has := u.User.Password(); has {
		return Config{}, errPassword
	}
	place := *u
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Scheme != "postgres" || u.Opaque != "" || u.Fragment != "" { // what else pgx would read in its own way
		return Config{}, errMalformed
	}
	if query.Has("password") {
		return Config{}, errPassword
	}
	cfg := Config{Table: defaultTable}
	if query.Has("table") {
		cfg.Table = query.Get("table")
		query.Del("table")
	}
	if !tableName.MatchString(cfg.Table) {
		return Config{}, fmt.Errorf("the journal URL has the table %q; want lower-case letters, digits and _, at most 40, a letter first", cfg.Table)
	}
	place.RawQuery = query.Encode()
	cfg.Pool, err = pgxpool.ParseConfig(place.String())
	if err == nil && !query.Has("sslmode") && !local(cfg.Pool.ConnConfig) {
		query.Set("sslmode", "verify-full")
		place.RawQuery = query.Encode()
		cfg.Pool, err = pgxpool.ParseConfig(place.String())
	}
	if err != nil {
		return Config{}, errMalformed
	}
	return cfg, nil
}

// local says whether all connections go to this machine: to a loopback address, or to
// a Unix socket. It asks what was made of the URL, because hosts may also come from the
// environment (PGHOST) or a service file.
func local(c *pgx.ConnConfig) bool {
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	return !slices.ContainsFunc(hosts, func(host string) bool {
		ip := net.ParseIP(host)
		return host != "localhost" && !filepath.IsAbs(host) && (ip == nil || !ip.IsLoopback())
	})
}
