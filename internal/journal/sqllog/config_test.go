package sqllog

import (
	"net/url"
	"strings"
	"testing"
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
