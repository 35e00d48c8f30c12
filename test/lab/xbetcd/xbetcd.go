// Package xbetcd runs xb etcd for tests. It never reads what is in a journal.
package xbetcd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
)

// A Server is xb etcd on a journal, at an address that outlives the process.
type Server struct {
	*process.Process
	Endpoint string // http://HOST:PORT

	env     []string
	journal string
	flags   []string
}

// Start serves the etcd API on the journal at the URL, on a free port of
// loopback, until the test ends. It waits until the API is served.
func Start(t testing.TB, env []string, journal string, flags ...string) *Server {
	t.Helper()
	s := &Server{env: env, journal: journal, flags: flags}
	s.start(t, "127.0.0.1:0")
	return s
}

// Restart starts xb etcd again, after Kill, at the same address.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.start(t, strings.TrimPrefix(s.Endpoint, "http://"))
}

func (s *Server) start(t testing.TB, listen string) {
	t.Helper()
	s.Process = process.Spawn(t, nil, "xb-etcd", s.env, append([]string{program.Need(t, "xb"), "etcd", "--journal", s.journal, "--listen", listen}, s.flags...)...)
	var err error
	if s.Endpoint, err = s.AwaitLine(t.Context(), "Serving the etcd API at "); err != nil {
		t.Fatal(err)
	}
}

// FileJournal is the URL of a journal that is not there yet, in a folder that
// goes when the test ends.
func FileJournal(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "xb-journal-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return "file://" + filepath.Join(dir, "journal")
}
