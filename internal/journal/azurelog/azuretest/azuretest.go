// Package azuretest runs Azurite, the emulator of Azure Blob Storage, for tests. It needs
// node and what test/azurite/install installs, and knows no journal.
package azuretest

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// Account is the storage account of a Server, and Key its shared key.
const Account = "accountoftests"

// Key is the shared key of Account, in base64.
var Key = base64.StdEncoding.EncodeToString([]byte("the key of an account that no cloud has"))

// Server is a running Azurite. It listens on loopback, and keeps its blobs in memory.
type Server struct {
	address    *url.URL
	containers atomic.Int64 // how many were made
}

var shared = sync.OnceValues(start)

// Shared returns the server that the tests of one process share. Main stops it. Without
// node or Azurite the test is skipped, and fails where CI is set.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") == "" {
		t.Skip("Azurite is not installed: test/azurite/install installs it, and needs node and npm")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Main runs the tests, and stops the shared server.
func Main(m *testing.M) int {
	defer Stop()
	return m.Run()
}

// Stop stops the shared server if a test has started it. No test runs any more.
func Stop() {
	if running != nil {
		_ = running.Process.Kill() // it may have ended
		_ = running.Wait()
	}
}

// running is the process of the shared server; nil until it was started.
var running *exec.Cmd

// start runs Azurite. The error is exec.ErrNotFound if it or node is not there.
func start() (*Server, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("node"); err != nil {
		return nil, err
	}
	process := exec.Command(program, "--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence",
		"--disableTelemetry", "--silent", "--blobKeepAliveTimeout", "3600")
	process.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+Account+":"+Key)
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	running = process
	said := new(strings.Builder)
	for lines := bufio.NewScanner(io.TeeReader(out, said)); lines.Scan(); {
		if _, address, ok := strings.Cut(lines.Text(), "listens on "); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }() // until Azurite ends
			u, err := url.Parse(address)
			return &Server{address: u}, err
		}
	}
	return nil, fmt.Errorf("azurite does not start; it said:\n%s", said)
}

// find looks for Azurite where test/azurite/install puts it, and in PATH.
func find() (string, error) {
	const name = "azurite-blob"
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		installed := filepath.Join(dir, ".tmp/azurite/node_modules/.bin", name)
		if _, err := os.Stat(installed); err == nil {
			return installed, nil
		}
	}
	return exec.LookPath(name)
}

// Container makes an empty container.
func (s *Server) Container(t testing.TB) string {
	t.Helper()
	name := fmt.Sprint("journals-", s.containers.Add(1))
	key, err := container.NewSharedKeyCredential(Account, Key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := container.NewClientWithSharedKeyCredential(s.address.JoinPath(Account, name).String(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	return name
}

// Handler is the store, to be served with something in between.
func (s *Server) Handler() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(s.address) },
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		ErrorLog:  log.New(io.Discard, "", 0), // clients that are gone
	}
}
