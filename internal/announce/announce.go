// Package announce lets servers say who they are, in a small blob beside their journal
// for each start of a server. A name is a label and never more: whoever can write to the
// store can write any announcement.
package announce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// Prefix starts the name of every announcement. The writer's ID follows, in 16 hex digits.
const Prefix = "server/"

const (
	// maxRead is how many announcements are read at most.
	maxRead = 256
	// maxBytes is the length of the longest announcement, in bytes.
	maxBytes = 1 << 10
	readers  = 16
)

// Server is what a server says of itself.
type Server struct {
	Writer  mvcc.WriterID `json:"-"`
	Name    string        `json:"name"`
	Account string        `json:"account,omitempty"` // that the server runs in
	Version string        `json:"version,omitempty"` // of xb
	Started time.Time     `json:"started"`           // by the server's own clock
}

// plain is what a name, an account or a version may be: nothing that a terminal, a table
// or a metric would take for something else.
var plain = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$`)

// CheckName returns an error unless s can be the name of a server or an account.
func CheckName(s string) error {
	if !plain.MatchString(s) {
		return fmt.Errorf("%.80q is not a name of at most 63 letters, digits, dots, dashes, underscores and plus signs that begins with a letter or digit", s)
	}
	return nil
}

// Label returns the server's name, and its account if it named one: NAME@ACCOUNT.
func (s *Server) Label() string {
	if s.Account == "" {
		return s.Name
	}
	return s.Name + "@" + s.Account
}

func (s *Server) check() error {
	for _, optional := range []string{s.Account, s.Version} {
		if optional != "" && CheckName(optional) != nil {
			return CheckName(optional)
		}
	}
	return CheckName(s.Name)
}

// Put stores the announcement of a server that starts. Then it deletes those of earlier
// starts under the same name and account, if this account may.
func Put(ctx context.Context, blobs journal.Blobs, s Server) error {
	s.Started = s.Started.UTC().Truncate(time.Second)
	if err := s.check(); err != nil {
		return err
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := blobs.PutBlob(ctx, blobOf(s.Writer), data); err != nil {
		return fmt.Errorf("announce this server: %w", err)
	}
	all, _, err := List(ctx, blobs)
	if err != nil {
		return fmt.Errorf("look for earlier announcements: %w", err)
	}
	for _, old := range all {
		if old.Writer != s.Writer && old.Name == s.Name && old.Account == s.Account {
			_ = blobs.DeleteBlob(ctx, blobOf(old.Writer)) // it may well be forbidden
		}
	}
	return nil
}

// List returns the announcements, in the order of their writers' IDs, and how many more
// there are: it reads 256 at most. It passes over those that are not well-formed.
func List(ctx context.Context, blobs journal.Blobs) (servers []Server, more int, err error) {
	names, err := blobs.ListBlobs(ctx, Prefix)
	if err != nil {
		return nil, 0, err
	}
	more = max(0, len(names)-maxRead)
	names = names[:len(names)-more]
	found := make([]*Server, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, name := range names {
		g.Go(func() (err error) {
			found[i], err = read(ctx, blobs, name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, 0, err
	}
	for _, s := range slices.DeleteFunc(found, func(s *Server) bool { return s == nil }) {
		servers = append(servers, *s)
	}
	return servers, more, nil
}

// read returns an announcement; nil if it is gone or not well-formed.
func read(ctx context.Context, blobs journal.Blobs, name string) (*Server, error) {
	writer, err := strconv.ParseUint(strings.TrimPrefix(name, Prefix), 16, 64)
	if err != nil || blobOf(mvcc.WriterID(writer)) != name {
		return nil, nil
	}
	data, err := blobs.GetBlob(ctx, name)
	if errors.Is(err, journal.ErrNoBlob) || errors.Is(err, journal.ErrCorrupt) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &Server{Writer: mvcc.WriterID(writer)}
	if len(data) > maxBytes || json.Unmarshal(data, s) != nil || s.check() != nil {
		return nil, nil
	}
	return s, nil
}

func blobOf(w mvcc.WriterID) string { return fmt.Sprintf("%s%016x", Prefix, uint64(w)) }
