// Package pgtest runs a PostgreSQL server of a test's own, on a Unix socket. It needs
// PostgreSQL's programs, and knows no journal.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Server is a running PostgreSQL, reached at a Unix socket without a password.
type Server struct {
	dir      string
	program  string
	settings []string            // NAME=VALUE
	user     *syscall.Credential // nil: the test's own
	process  *exec.Cmd
	log      *bytes.Buffer // read it once process has ended
}

// Start makes a database cluster and runs a server on it until the test ends. settings
// are those of postgresql.conf, NAME=VALUE. Without PostgreSQL's programs the test is skipped, and
// fails where CI is set.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := New(settings...)
	need(t, err)
	t.Cleanup(s.Remove)
	return s
}

var shared = sync.OnceValues(func() (*Server, error) { return New() })

// Shared returns a server that the tests of one process share. Main stops it.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	need(t, err)
	return s
}

// need skips the test if PostgreSQL is not there to be started, but not in CI.
func need(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") == "" {
		t.Skip("PostgreSQL is not installed: its initdb was not found")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Main runs the tests, and stops the shared server.
func Main(m *testing.M) int {
	code := m.Run()
	if s, err := shared(); err == nil {
		s.Remove()
	}
	return code
}

// Remove ends the server, and removes all that it has stored.
func (s *Server) Remove() {
	s.Kill()
	_ = os.RemoveAll(s.dir)
}

// New is Start for a program that is no test. The caller must Remove the server. The error
// is exec.ErrNotFound if PostgreSQL's programs are not there.
func New(settings ...string) (*Server, error) {
	initdb, err := find("initdb")
	if err != nil {
		return nil, err
	}
	s, err := empty(filepath.Dir(initdb), settings)
	if err != nil {
		return nil, err
	}
	if err := s.run("initdb", "--pgdata", s.data(), "--username", "postgres", "--auth", "trust", "--no-sync", "--encoding", "UTF8", "--locale", "C"); err != nil {
		return nil, err
	}
	return s, s.Restart()
}

// empty is a server that has a folder, and no database cluster in it. programs is where
// PostgreSQL's are.
func empty(programs string, settings []string) (*Server, error) {
	place := "/dev/shm" // memory, where there is one: syncing takes no time
	if _, err := os.Stat(place); err != nil {
		place = ""
	}
	dir, err := os.MkdirTemp(place, "pg")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, program: filepath.Join(programs, "postgres"), settings: settings}
	return s, s.unprivileged()
}

// run runs one of PostgreSQL's programs to its end, as the server's user.
func (s *Server) run(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(filepath.Dir(s.program), name), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user}
	cmd.Dir = s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// Follower runs a second server that follows this one until the test ends. From then on the
// first acknowledges a write only once the second has it, too.
func (s *Server) Follower(t testing.TB) *Server {
	t.Helper()
	f, err := empty(filepath.Dir(s.program), s.settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Remove)
	if err := f.run("pg_basebackup", "--pgdata", f.data(), "--host", s.dir, "--username", "postgres", "--write-recovery-conf", "--checkpoint", "fast", "--no-sync"); err != nil {
		t.Fatal(err)
	}
	if err := f.Restart(); err != nil {
		t.Fatal(err)
	}
	s.settings = append(s.settings, "synchronous_standby_names=*")
	s.Kill()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	return f
}

// Promote makes a follower the primary, and waits until it is.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	if rows := c.ExecParams(t.Context(), "SELECT pg_promote()", nil, nil, nil, nil).Read(); rows.Err != nil || string(rows.Rows[0][0]) != "t" {
		t.Fatalf("the follower does not become the primary: %v", rows.Err)
	}
}

// Dir is the folder of the server's Unix socket.
func (s *Server) Dir() string { return s.dir }

// find looks for one of PostgreSQL's programs, also where Debian puts them.
func find(name string) (string, error) {
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); err == nil && len(found) > 0 {
		return found[len(found)-1], nil
	}
	return exec.LookPath(name)
}

// unprivileged has the server run as another user if the test is root's: PostgreSQL
// refuses to run as root.
func (s *Server) unprivileged() error {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32) // digits, on every Unix
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		s.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return os.Chown(s.dir, int(uid), int(gid))
	}
	return errors.New("there is no user to run PostgreSQL as")
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// URL is that of a database, as user postgres. parameters are added as they are.
func (s *Server) URL(database string, parameters ...string) string {
	return fmt.Sprintf("postgres://postgres@/%s?%s", database, strings.Join(append([]string{"host=" + s.dir}, parameters...), "&"))
}

// Socket is the path of the server's Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

// Kill ends the server at once and with no last words to the disk, as a crash does.
// (SIGQUIT: after SIGKILL its processes would go on for a while without their parent.)
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Signal(syscall.SIGQUIT) // it may have ended
	_ = s.process.Wait()
	s.process = nil
}

// Restart runs the server, again after Kill, and returns once it answers.
func (s *Server) Restart() (err error) {
	args := []string{"-D", s.data()}
	for _, setting := range append([]string{"listen_addresses=", "unix_socket_directories=" + s.dir, "max_connections=200"}, s.settings...) {
		args = append(args, "-c", setting)
	}
	s.process, s.log = exec.Command(s.program, args...), new(bytes.Buffer)
	s.process.SysProcAttr = &syscall.SysProcAttr{Credential: s.user, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	s.process.Dir = s.dir
	s.process.Stdout, s.process.Stderr = s.log, s.log
	if err := s.process.Start(); err != nil {
		return err
	}
	for range 600 {
		var c *pgconn.PgConn
		if c, err = pgconn.Connect(context.Background(), s.URL("postgres")); err == nil {
			return c.Close(context.Background())
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.Kill()
	return fmt.Errorf("PostgreSQL does not answer within 30 s: %w; its log:\n%s", err, s.log)
}

// Standby makes the server one that only follows another: a read replica.
func (s *Server) Standby(t testing.TB) {
	t.Helper()
	_ = s.process.Process.Signal(syscall.SIGINT) // ends it in good order
	_ = s.process.Wait()
	signal := filepath.Join(s.data(), "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil { //nolint:forbidigo // for PostgreSQL, in the test's own folder
		t.Fatal(err)
	}
	if s.user != nil {
		if err := os.Chown(signal, int(s.user.Uid), int(s.user.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
}
