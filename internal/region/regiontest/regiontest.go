// Package regiontest runs xb servers as regions, for tests. It knows nothing of what is
// stored in them.
package regiontest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/xbernetes/xbernetes/internal/region/definitions"
)

// Server is one xb server with a journal of its own.
type Server struct {
	binary, dir, listen string
	flags               []string // further ones of xb server
	process             *exec.Cmd
}

// Binary returns the xb to run, $XB_BIN. Without it, the test is skipped, and fails in CI.
func Binary(t *testing.T) string {
	t.Helper()
	binary := os.Getenv("XB_BIN")
	if binary == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("XB_BIN is not set: it is the xb to test with")
		}
		t.Skip("XB_BIN is not set: no real servers")
	}
	return binary
}

// Start starts a server with further flags, which ends with the test.
func Start(t *testing.T, binary string, flags ...string) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{binary: binary, dir: t.TempDir(), listen: l.Addr().String(), flags: flags}
	l.Close()
	s.Run(t)
	t.Cleanup(s.Kill)
	return s
}

// Run starts the server again after Kill.
func (s *Server) Run(t *testing.T) {
	t.Helper()
	s.process = exec.Command(s.binary, append([]string{"server", "--journal", "file://" + filepath.Join(s.dir, "journal"),
		"--data-dir", filepath.Join(s.dir, "data"), "--listen", s.listen}, s.flags...)...)
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the server without a warning.
func (s *Server) Kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

// Kubeconfig is where the server writes its kubeconfig.
func (s *Server) Kubeconfig() string { return filepath.Join(s.dir, "data", "kubeconfig") }

// Ready installs the definitions once the server answers, and returns how to reach it.
func (s *Server) Ready(t *testing.T) *rest.Config {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
		if err == nil {
			config.QPS = -1
			if err = definitions.Install(ctx, config); err == nil {
				return config
			}
		}
		last = err
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatalf("the server at %s is not ready: %v", s.listen, last)
	return nil
}
