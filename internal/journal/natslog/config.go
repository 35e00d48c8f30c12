package natslog

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Config says where a journal lives and how to reach it. ParseURL makes it.
type Config struct {
	// Servers are the addresses of servers of one cluster, HOST:PORT.
	Servers []string
	// Name is the journal's: lower-case letters, digits and -, 40 at most. The default
	// is xbernetes.
	Name string
	// Synced is the operator's word that every server syncs each write before it
	// acknowledges it. Without it a journal can only be read.
	Synced bool
	// Replicas is on how many servers a journal is kept that is created: 1, 3 or 5.
	Replicas int
	// Inbox is what the subjects of answers begin with. The default is _INBOX.
	Inbox string
	// ReadOnly opens a journal that must exist, and changes nothing.
	ReadOnly bool
	// Exclusive says that no other process can reach the servers.
	Exclusive bool
	// Options are further options of the connection: who the user is, and how a
	// server in this process is reached.
	Options []nats.Option
	// Logger gets what people should know; nil: nobody.
	Logger *slog.Logger
}

const (
	// DefaultName is the name of a journal unless its URL says otherwise.
	DefaultName = "xbernetes"
	defaultPort = "4222"
	// connectTimeout bounds the making of a connection to one server.
	connectTimeout = 10 * time.Second
)

var (
	journalName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
	inboxPrefix = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}$`)
)

var (
	errMalformed = errors.New("the journal URL is malformed; want nats://USER@HOST:PORT,HOST:PORT/NAME?synced=true&replicas=3, with creds=, nkey=, ca=, cert= and key= for files and inbox= for a prefix")
	errPassword  = errors.New("the journal URL has a password in it, which other users of this machine can see; put it into the environment as NATS_PASSWORD, or into a file that NATS_PASSWORD_FILE names")
)

// Connect connects to the servers, with further options.
func (c Config) Connect(further ...nats.Option) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name("xbernetes"),
		nats.Timeout(connectTimeout),
		nats.PingInterval(5 * time.Second),
		nats.IgnoreDiscoveredServers(), // only whom the URL names gets our credentials
	}
	if c.Inbox != "" {
		options = append(options, nats.CustomInboxPrefix(c.Inbox))
	}
	return nats.Connect(strings.Join(c.Servers, ","), slices.Concat(options, further, c.Options)...)
}

// HintSubject is where the servers of the journal tell each other that they have written
// a record. No stream keeps what is published there.
func (c Config) HintSubject(id journal.ID) string { return c.Name + ".hint." + id.String() }

// ParseURL reads nats://USER@HOST:PORT,HOST:PORT/NAME?…. A password or token in the URL is
// refused: other users of the machine see command lines. Unless all hosts are this
// machine, connections are made with TLS, and the servers' certificates verified.
func ParseURL(u *url.URL) (Config, error) {
	if _, has := u.User.Password(); has {
		return Config{}, errPassword
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" || u.Opaque != "" {
		return Config{}, errMalformed
	}
	cfg := Config{Name: DefaultName, Replicas: 1}
	if cfg.Servers, err = parseHosts(u.Host); err != nil {
		return Config{}, err
	}
	if name := strings.Trim(u.Path, "/"); name != "" {
		cfg.Name = name
	}
	if !journalName.MatchString(cfg.Name) {
		return Config{}, fmt.Errorf("the journal URL has the name %q; want lower-case letters, digits and -, at most 40, a letter first", cfg.Name)
	}
	files := credentials{user: u.User.Username()}
	if err := parseQuery(&cfg, &files, query); err != nil {
		return Config{}, err
	}
	cfg.Options, err = files.options(!slices.ContainsFunc(cfg.Servers, remote))
	return cfg, err
}

func parseHosts(hosts string) (servers []string, err error) {
	for host := range strings.SplitSeq(hosts, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), defaultPort
		}
		if name == "" || strings.ContainsAny(name, "/@?# ") {
			return nil, errMalformed
		}
		servers = append(servers, net.JoinHostPort(name, port))
	}
	return servers, nil
}

// remote says whether a server is not on this machine.
func remote(server string) bool {
	host, _, _ := net.SplitHostPort(server) // parseHosts joined it
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

func parseQuery(cfg *Config, files *credentials, query url.Values) error {
	for name, values := range query {
		value := values[0]
		switch name {
		case "synced":
			cfg.Synced = value == "true"
		case "replicas":
			if !slices.Contains([]string{"1", "3", "5"}, value) {
				return fmt.Errorf("the journal URL has replicas=%q; want 1, 3 or 5", value)
			}
			cfg.Replicas = int(value[0] - '0')
		case "inbox":
			if !inboxPrefix.MatchString(value) {
				return fmt.Errorf("the journal URL has inbox=%q; want words of letters, digits, _ and -, joined by dots", value)
			}
			cfg.Inbox = value
		case "creds":
			files.creds = value
		case "nkey":
			files.nkey = value
		case "ca":
			files.ca = value
		case "cert":
			files.cert = value
		case "key":
			files.key = value
		case "password", "token":
			return errPassword
		default:
			return errMalformed
		}
	}
	return nil
}

// credentials say who the user is, and whom to trust: a name, and names of files.
type credentials struct{ user, creds, nkey, ca, cert, key string }

// options are those of a connection. The password comes from the environment, or from
// a file that it names. plain says that no TLS is needed.
func (c credentials) options(plain bool) (options []nats.Option, err error) {
	if !plain {
		options = append(options, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	if c.ca != "" {
		options = append(options, nats.RootCAs(c.ca))
	}
	if c.cert != "" || c.key != "" {
		options = append(options, nats.ClientCert(c.cert, c.key))
	}
	if c.creds != "" {
		options = append(options, nats.UserCredentials(c.creds))
	}
	if c.nkey != "" {
		nkey, err := nats.NkeyOptionFromSeed(c.nkey)
		if err != nil {
			return nil, fmt.Errorf("the journal URL names the nkey file %s: %w", c.nkey, err)
		}
		options = append(options, nkey)
	}
	if c.user != "" {
		options = append(options, nats.UserInfoHandler(func() (string, string) { return c.user, password() }))
		if _, err := os.ReadFile(os.Getenv("NATS_PASSWORD_FILE")); err != nil && os.Getenv("NATS_PASSWORD_FILE") != "" {
			return nil, fmt.Errorf("read the password that NATS_PASSWORD_FILE names: %w", err)
		}
	}
	return options, nil
}

// password is asked for at each connection, so that it can be changed meanwhile.
func password() string {
	if file := os.Getenv("NATS_PASSWORD_FILE"); file != "" {
		data, _ := os.ReadFile(file) // without it, the server refuses the user
		return strings.TrimSpace(string(data))
	}
	return os.Getenv("NATS_PASSWORD")
}
