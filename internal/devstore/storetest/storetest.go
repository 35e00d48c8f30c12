// Package storetest runs object stores of package devstore for tests, each in
// a process of its own, so that a test can kill it, and keep its working
// directory. It knows no journal.
package storetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/xbernetes/xbernetes/internal/devstore"
)

// variable tells a test binary to be a store.
const variable = "XB_TEST_DEVSTORE"

// Main is what a test package that uses Start has as its TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }
func Main(m *testing.M) int {
	given := os.Getenv(variable)
	if given == "" {
		return m.Run()
	}
	if err := serve(given); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serve runs a store until standard input ends: when the test says so, or
// when its process is gone.
func serve(given string) error {
	var cfg devstore.Config
	if err := json.Unmarshal([]byte(given), &cfg); err != nil {
		return fmt.Errorf("decode %s: %w", variable, err)
	}
	store, err := devstore.Open(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var watch sync.WaitGroup
	watch.Go(func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	})
	watch.Go(func() {
		select {
		case <-store.Ready():
			fmt.Println(store.Addr())
		case <-ctx.Done():
		}
	})
	return store.Run(ctx)
}

// Store is a store in another process.
type Store struct {
	tb    testing.TB
	cfg   devstore.Config
	cmd   *exec.Cmd
	stdin io.Closer
}

// Start runs a store until the test ends.
func Start(tb testing.TB, cfg devstore.Config) *Store {
	tb.Helper()
	s := &Store{tb: tb, cfg: cfg}
	s.start()
	tb.Cleanup(s.Stop)
	return s
}

// Endpoint is the base URL of the store. It stays when the store is restarted.
func (s *Store) Endpoint() string { return "http://" + s.cfg.Listen }

// Addr is the host:port of the store.
func (s *Store) Addr() string { return s.cfg.Listen }

// Stop ends the store, and waits.
func (s *Store) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.stdin.Close()
	if err := s.cmd.Wait(); err != nil {
		s.tb.Errorf("object store ended: %v", err)
	}
	s.cmd = nil
}

// Kill ends the store as kill -9 does, and waits.
func (s *Store) Kill() {
	s.tb.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.tb.Fatalf("kill object store: %v", err)
	}
	_ = s.cmd.Wait()
	_ = s.stdin.Close()
	s.cmd = nil
}

// Restart starts the store again, after Stop or Kill, on the same directory
// and address.
func (s *Store) Restart() {
	s.tb.Helper()
	s.start()
}

func (s *Store) start() {
	s.tb.Helper()
	given, err := json.Marshal(s.cfg)
	if err != nil {
		s.tb.Fatalf("encode the configuration of the object store: %v", err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+string(given))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.tb.Fatalf("start object store: %v", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.tb.Fatalf("start object store: %v", err)
	}
	if err := cmd.Start(); err != nil {
		s.tb.Fatalf("start object store: %v", err)
	}
	s.cmd, s.stdin = cmd, stdin
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		s.tb.Fatalf("object store did not start: %v", err)
	}
	s.cfg.Listen = strings.TrimSpace(line)
}
