package natslog

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]struct {
		servers []string
		name    string
		tls     bool
	}{
		"nats://nats.example.com":                    {[]string{"nats.example.com:4222"}, "xbernetes", true},
		"nats://127.0.0.1:4333/state":                {[]string{"127.0.0.1:4333"}, "state", false},
		"nats://localhost,127.0.0.2:4333/a-1":        {[]string{"localhost:4222", "127.0.0.2:4333"}, "a-1", false},
		"nats://[::1]/state":                         {[]string{"[::1]:4222"}, "state", false},
		"nats://localhost:4222,192.0.2.1:4222/state": {[]string{"localhost:4222", "192.0.2.1:4222"}, "state", true},
		"nats://localhost.example.com:4222/state":    {[]string{"localhost.example.com:4222"}, "state", true},
	} {
		cfg, err := ParseURL(parse(t, raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		options := nats.GetDefaultOptions()
		for _, option := range cfg.Options {
			if err := option(&options); err != nil {
				t.Error(err)
			}
		}
		if diff := cmp.Diff(want.servers, cfg.Servers); diff != "" || cfg.Name != want.name {
			t.Errorf("%s: journal %q, servers %s", raw, cfg.Name, diff)
		}
		if options.Secure != want.tls || want.tls && (options.TLSConfig == nil || options.TLSConfig.InsecureSkipVerify) {
			t.Errorf("%s: TLS is %v, with %+v; want %v, verified", raw, options.Secure, options.TLSConfig, want.tls)
		}
	}
	for raw, want := range map[string]string{
		"nats://xb:secret@localhost/state":            "password",
		"nats://localhost/state?password=secret":      "password",
		"nats://localhost/state?token=secret":         "password",
		"nats://localhost/state?secret=1":             "malformed",
		"nats://localhost/State":                      "name",
		"nats://localhost/a/b":                        "name",
		"nats://localhost/a.b":                        "name",
		"nats:///state":                               "malformed",
		"nats://localhost,/state":                     "malformed",
		"nats://localhost/state?replicas=2":           "1, 3 or 5",
		"nats://localhost/state?inbox=>":              "inbox",
		"nats://localhost/state?nkey=/nowhere/at/all": "nkey",
		"nats:opaque":                                 "malformed",
	} {
		_, err := ParseURL(parse(t, raw))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q and no secret", raw, err, want)
		}
	}
	t.Setenv("NATS_PASSWORD_FILE", "/nowhere/at/all")
	if _, err := ParseURL(parse(t, "nats://xb@localhost/state")); err == nil || !strings.Contains(err.Error(), "NATS_PASSWORD_FILE") {
		t.Errorf("a password file that is not there: %v", err)
	}
}

func parse(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// FuzzParseURL: a URL is refused, or names servers and a journal by words that can be part
// of a subject.
func FuzzParseURL(f *testing.F) {
	for _, raw := range []string{
		"nats://user@a:4222,b:4222/name?synced=true&replicas=3", "nats://[::1]:4222/", "nats://a/name?inbox=_INBOX.x", "nats://u:s3cr3t@a/",
		"nats://a/b.c", "nats://a/>", "nats://,/x", "nats:x", "nats://a/?replicas=2",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		for _, file := range []string{"creds", "nkey", "ca", "cert", "key"} {
			if u.Query().Has(file) {
				return // it would be read
			}
		}
		cfg, err := ParseURL(u)
		if err != nil {
			return
		}
		if !journalName.MatchString(cfg.Name) || strings.ContainsAny(cfg.Name+cfg.Inbox, "*> ") || len(cfg.Servers) == 0 {
			t.Errorf("%q is journal %q at %q with inbox %q", raw, cfg.Name, cfg.Servers, cfg.Inbox)
		}
		if _, has := u.User.Password(); has {
			t.Errorf("%q is taken, with a password in it", u.Redacted())
		}
	})
}
