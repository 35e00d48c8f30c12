package sqllog

import (
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestParseURL(t *testing.T) {
	t.Setenv("PGSSLROOTCERT", "") // the user's own
	for raw, want := range map[string]string{
		"postgres://xb@db.example.com/state":                 "verified",
		"postgres://xb@db.example.com/state?sslmode=disable": "plain",
		"postgres://xb@127.0.0.1:5433/state":                 "",
		"postgres://xb@localhost/state?table=other_1":        "",
		"postgres://xb@/state?host=/run/postgresql":          "",
		"postgres://xb@/state?host=db.example.com":           "verified",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := ParseURL(u)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		conn := cfg.Pool.ConnConfig
		switch {
		case conn.Database != "state" || conn.User != "xb":
			t.Errorf("%s: database %q as %q", raw, conn.Database, conn.User)
		case want == "verified" && (conn.TLSConfig == nil || conn.TLSConfig.InsecureSkipVerify || len(conn.Fallbacks) > 0):
			t.Errorf("%s: the server's certificate is not verified: %+v", raw, conn.TLSConfig)
		case want == "plain" && conn.TLSConfig != nil:
			t.Errorf("%s: TLS against the URL's word", raw)
		}
	}
	t.Setenv("PGHOST", "db.example.com")
	u, err := url.Parse("postgres://xb@/state")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := ParseURL(u)
	if err != nil || cfg.Pool.ConnConfig.Host != "db.example.com" || cfg.Pool.ConnConfig.TLSConfig == nil || cfg.Pool.ConnConfig.TLSConfig.InsecureSkipVerify || len(cfg.Pool.ConnConfig.Fallbacks) > 0 {
		t.Errorf("the host of PGHOST is not verified: %v", err)
	}
	for raw, want := range map[string]string{
		"postgres://xb:secret@db/state":          "password",
		"postgres://xb@db/state?password=secret": "password",
		"postgres://xb@db/state?table=a;drop":    "table",
		"postgres://xb@db/state?table=A":         "table",
		"postgres://xb@db/state?sslmode=perhaps": "malformed",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ParseURL(u)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q and no secret", raw, err, want)
		}
	}
}

// FuzzParseURL: a URL is refused without its password, or names tables and a database, and
// goes to other machines with a verified certificate only, unless it has an sslmode.
func FuzzParseURL(f *testing.F) {
	for _, raw := range []string{
		"postgres://xb@db.example.com/state?table=a_1", "postgres://xb@/state?host=/run/postgresql", "postgres://xb:s3cr3t@h/d",
		"postgres://xb@127.0.0.1:5433,db.example.com/state", "postgres://h/d?password=s3cr3t", "postgres://h/d?sslmode=disable", "postgres:", "postgres://%2f/d?table=",
	} {
		f.Add(raw)
	}
	f.Setenv("PGSSLROOTCERT", "")
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil || u.Query().Has("service") || u.Query().Has("servicefile") || u.Query().Has("passfile") {
			return // the last three read files of this machine
		}
		cfg, err := ParseURL(u)
		if password, has := u.User.Password(); err != nil {
			if has && len(password) > 3 && strings.Contains(err.Error(), password) {
				t.Errorf("the error repeats the password: %v", err)
			}
			return
		}
		if !tableName.MatchString(cfg.Table) {
			t.Errorf("%q has the table %q", raw, cfg.Table)
		}
		if u.Query().Has("sslmode") {
			return
		}
		c := cfg.Pool.ConnConfig
		for _, to := range append(c.Fallbacks, &pgconn.FallbackConfig{Host: c.Host, TLSConfig: c.TLSConfig}) {
			alone := &pgx.ConnConfig{Config: pgconn.Config{Host: to.Host}}
			if !local(alone) && (to.TLSConfig == nil || to.TLSConfig.InsecureSkipVerify) {
				t.Errorf("%q goes to %s without a verified certificate", raw, to.Host)
			}
		}
	})
}
