// Package natstest runs NATS servers for tests, on loopback. It knows no journal.
package natstest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const startTimeout = 30 * time.Second

// Server is a running NATS server with JetStream.
type Server struct {
	*server.Server
	Options *server.Options
}

// Defaults are the options of a server that syncs every write to a folder of the
// test's own.
func Defaults(t testing.TB) *server.Options {
	return defaults(t.TempDir())
}

func defaults(dir string) *server.Options {
	return &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT,
		NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, SyncAlways: true,
		MaxPayload: 8<<20 + 64<<10,
	}
}

// Start runs a server until the test ends. change, unless it is nil, changes its options.
func Start(t testing.TB, change func(*server.Options)) *Server {
	t.Helper()
	options := Defaults(t)
	if change != nil {
		change(options)
	}
	s := &Server{Options: options}
	s.run(t)
	s.ready(t)
	return s
}

// run starts the server, which need not be ready yet.
func (s *Server) run(t testing.TB) {
	t.Helper()
	started, err := server.NewServer(s.Options)
	if err != nil {
		t.Fatal(err)
	}
	s.Server = started
	started.Start()
	t.Cleanup(s.Stop)
}

func (s *Server) ready(t testing.TB) {
	t.Helper()
	if !s.ReadyForConnections(startTimeout) {
		t.Fatal("the NATS server did not start")
	}
}

// Stop ends the server.
func (s *Server) Stop() {
	s.Shutdown()
	s.WaitForShutdown()
}

// Host is where the server listens, HOST:PORT.
func (s *Server) Host() string { return s.Addr().String() }

// URL is the URL of the journal of that name at the servers, with parameters such as
// replicas=3.
func URL(name string, parameters []string, servers ...*Server) string {
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, s.Host())
	}
	return fmt.Sprintf("nats://%s/%s?%s", strings.Join(hosts, ","), name, strings.Join(parameters, "&"))
}

// Cluster runs three servers that keep streams together, until the test ends.
func Cluster(t testing.TB) []*Server {
	t.Helper()
	ports := freePorts(t, 3)
	var routes []*url.URL
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", port)})
	}
	var servers []*Server
	for n, port := range ports {
		s := &Server{Options: Defaults(t)}
		s.Options.ServerName = fmt.Sprint("server-", n)
		s.Options.Cluster = server.ClusterOpts{Name: "cluster", Host: "127.0.0.1", Port: port}
		s.Options.Routes = routes
		s.run(t)
		servers = append(servers, s)
	}
	for _, s := range servers {
		s.ready(t)
	}
	deadline := time.Now().Add(startTimeout)
	for !clustered(servers) {
		if time.Now().After(deadline) {
			t.Fatal("the NATS servers did not find each other")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return servers
}

// freePorts returns ports of loopback at which nobody listens just now.
func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close() // all at the end, so that each port is another one
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func clustered(servers []*Server) bool {
	leaders := 0
	for _, s := range servers {
		if s.JetStreamIsLeader() {
			leaders++
		}
		if len(s.JetStreamClusterPeers()) != len(servers) && s.JetStreamIsLeader() {
			return false
		}
	}
	return leaders == 1
}

// Leader is the server that leads the stream of the global account, nil if there is none.
func Leader(servers []*Server, stream string) *Server {
	for _, s := range servers {
		if s.Running() && s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream) {
			return s
		}
	}
	return nil
}

// childDir is the variable by which a child process is told its folder.
const childDir = "NATSTEST_DIR"

// Main is for a TestMain. It returns only in the test itself, not in a child process
// that is a server.
func Main() {
	dir := os.Getenv(childDir)
	if dir == "" {
		return
	}
	options := defaults(dir)
	options.PortsFileDir = dir
	s, err := server.NewServer(options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.Start()
	s.WaitForShutdown()
	os.Exit(0)
}

// Process is a server in a process of its own, which can be killed.
type Process struct {
	dir     string
	process *exec.Cmd
	host    string
}

// StartProcess runs a server until the test ends. The test's TestMain must call Main.
func StartProcess(t testing.TB) *Process {
	t.Helper()
	p := &Process{dir: t.TempDir()}
	p.Restart(t)
	t.Cleanup(p.Kill)
	return p
}

// Restart runs the server again, on the same folder, at another port.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.process = exec.Command(program)
	p.process.Env = append(os.Environ(), childDir+"="+p.dir)
	p.process.Stderr = os.Stderr
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	p.host = p.await(t)
}

// URL is the URL of the journal of that name at the server as it runs now.
func (p *Process) URL(name string) string { return "nats://" + p.host + "/" + name + "?synced=true" }

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.process.Process.Kill()
	_ = p.process.Wait()
}

// await waits for the file by which the server says where it listens.
func (p *Process) await(t testing.TB) string {
	t.Helper()
	file := fmt.Sprintf("%s/%s_%d.ports", p.dir, filepath.Base(p.process.Path), p.process.Process.Pid)
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) {
		var ports struct {
			NATS []string `json:"nats"`
		}
		data, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(data, &ports) == nil && len(ports.NATS) > 0 {
			return strings.TrimPrefix(ports.NATS[0], "nats://")
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the NATS server did not start")
	return ""
}
