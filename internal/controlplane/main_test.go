package controlplane

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/xbernetes/xbernetes/internal/controlplane/election"
)

// childConfig is the variable that gives a Config to a copy of the test binary,
// which runs it. A process runs one server; tests need several, and kill them.
const childConfig = "XBERNETES_TEST_CONTROLPLANE"

// childKubectl is the variable that makes a copy of the test binary run kubectl, of
// the same release.
const childKubectl = "XBERNETES_TEST_KUBECTL"

func TestMain(m *testing.M) {
	if os.Getenv(childKubectl) != "" {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
		os.Exit(0)
	}
	if c := os.Getenv(childConfig); c != "" {
		os.Exit(child(c))
	}
	// When etcd's server stops, gRPC warns of every call that this cut short, and the
	// API server's storage, which is linked here, makes gRPC print warnings.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr))
	code := m.Run()
	if lines := stopShared(); len(lines) > 0 {
		fmt.Printf("FAIL: servers logged errors although nothing is wrong:\n%s\n", strings.Join(lines, "\n"))
		code = 1
	}
	os.Exit(code)
}

// childSettings are those parts of Config that can cross a process boundary.
type childSettings struct {
	Addresses      []string
	DataDir        string
	Listen         string
	ServerID       string
	LeaderElection election.Pace
	Options        Options
}

func child(encoded string) int {
	var c childSettings
	if err := json.Unmarshal([]byte(encoded), &c); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	level := slog.LevelInfo
	if v, err := strconv.Atoi(os.Getenv("XBERNETES_TEST_DEBUG")); err == nil {
		level, c.Options.Verbosity = slog.LevelDebug, v
	}
	s, err := New(Config{
		Etcd: Endpoint{Addresses: c.Addresses}, DataDir: c.DataDir, Listen: c.Listen, ServerID: c.ServerID,
		LeaderElection: c.LeaderElection, Options: c.Options,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	go func() {
		select {
		case <-s.Ready():
			fmt.Println("ready", s.URL())
		case <-ctx.Done():
		}
	}()
	if err := s.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// server is a control plane in a process of its own.
type server struct {
	cmd     *exec.Cmd
	dir     string
	exited  chan struct{}
	config  *rest.Config
	client  *kubernetes.Clientset
	dynamic *dynamic.DynamicClient

	mu  sync.Mutex
	log []string
}

// startTimeout bounds a start. It is far longer than a start takes.
const startTimeout = 2 * time.Minute

// launch starts a server without waiting for it to be ready.
func launch(c childSettings) (s *server, ready <-chan string, err error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	encoded, err := json.Marshal(c)
	if err != nil {
		return nil, nil, err
	}
	s = &server{cmd: exec.Command(os.Args[0]), dir: c.DataDir, exited: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), childConfig+"="+string(encoded))
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, nil, err
	}
	var pipes sync.WaitGroup
	up := make(chan string, 1)
	pipes.Go(func() {
		for sc := bufio.NewScanner(stdout); sc.Scan(); {
			if u, ok := strings.CutPrefix(sc.Text(), "ready "); ok {
				up <- u
			}
		}
	})
	pipes.Go(func() {
		for sc := bufio.NewScanner(stderr); sc.Scan(); {
			if os.Getenv("XBERNETES_TEST_DEBUG") != "" {
				fmt.Fprintln(os.Stderr, c.ServerID, sc.Text())
			}
			s.mu.Lock()
			s.log = append(s.log, sc.Text())
			s.mu.Unlock()
		}
	})
	go func() {
		pipes.Wait()
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	return s, up, nil
}

// start starts a server and waits until it is ready.
func start(c childSettings) (*server, error) {
	s, ready, err := launch(c)
	if err != nil {
		return nil, err
	}
	return s, s.await(ready)
}

func (s *server) await(ready <-chan string) error {
	select {
	case <-ready:
	case <-s.exited:
		return fmt.Errorf("server exited:\n%s", s.logs())
	case <-time.After(startTimeout):
		s.kill()
		return fmt.Errorf("server is not ready:\n%s", s.logs())
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "kubeconfig"))
	if err != nil {
		return err
	}
	cfg.QPS = -1
	s.config = cfg
	if s.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	s.dynamic, err = dynamic.NewForConfig(cfg)
	return err
}

func (s *server) logs() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// stop stops the server as a user does, and returns its exit code.
func (s *server) stop() int {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(startTimeout):
		s.kill()
	}
	return s.cmd.ProcessState.ExitCode()
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// startTest starts a server that lives as long as the test.
func startTest(t *testing.T, c childSettings) *server {
	t.Helper()
	if c.DataDir == "" {
		c.DataDir = t.TempDir()
	}
	s, err := start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("log of server %s:\n%s", c.ServerID, s.logs())
		}
	})
	return s
}

// startEtcd starts an etcd in this process, and returns its client URL.
func startEtcd(dir, listen string) (*embed.Etcd, string, error) {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.UnsafeNoFsync = true
	client, peer := url.URL{Scheme: "http", Host: listen}, url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", err
	}
	<-e.Server.ReadyNotify()
	return e, "http://" + e.Clients[0].Addr().String(), nil
}

// pair is two servers on one store: most tests share it.
type pair struct {
	dir  string
	etcd *embed.Etcd
	url  string
	a, b *server
}

var (
	sharedOnce sync.Once
	shared     *pair
	sharedErr  error
)

// fast makes an election that does not keep a test waiting.
var fast = election.Pace{Lease: 6 * time.Second, Renew: 4 * time.Second, Retry: time.Second}

// servers returns the shared pair, starting it at the first call.
func servers(t *testing.T) *pair {
	t.Helper()
	sharedOnce.Do(func() {
		p := &pair{}
		shared = p
		if p.dir, sharedErr = os.MkdirTemp("", "controlplane-test-"); sharedErr != nil {
			return
		}
		if p.etcd, p.url, sharedErr = startEtcd(filepath.Join(p.dir, "etcd"), "127.0.0.1:0"); sharedErr != nil {
			return
		}
		var ready [2]<-chan string
		for i, s := range []**server{&p.a, &p.b} {
			name := string(rune('a' + i))
			if *s, ready[i], sharedErr = launch(childSettings{
				Addresses: []string{p.url}, DataDir: filepath.Join(p.dir, name), ServerID: name, LeaderElection: fast,
			}); sharedErr != nil {
				return
			}
		}
		// Both at once, on a fresh store: they race for every bootstrap object.
		for i, s := range []*server{p.a, p.b} {
			if sharedErr = s.await(ready[i]); sharedErr != nil {
				return
			}
		}
	})
	if sharedErr != nil {
		t.Fatal(sharedErr)
	}
	return shared
}

// harmless matches errors that two servers may log although nothing is wrong:
//
//   - Tests send invalid tokens, ask for kinds that were defined a moment ago, and have
//     a conversion webhook that refuses an object.
//   - Controllers of two servers act on the same objects, and tests delete them
//     meanwhile. The API refuses whoever comes second, and the controller tries again.
//   - The garbage collector and the quota controller wait half a minute for the cache
//     of a kind. If a test has deleted that kind meanwhile, they say that the time is
//     over, ask discovery again, and work on.
var harmless = regexp.MustCompile(`Unable to authenticate the request|storage is \(re\)initializing|` +
	`conversion webhook for test\.xbernetes\.dev/\S+ Kind=Barrel failed: \d+ millilitres|` +
	`the object has been modified; please apply your changes|` +
	`[a-z.]+ \S+ (not found|already exists)(,|"|$)|` +
	`Unable to sync caches" logger=UnhandledError$|dependency graph builder sync during GC sync|` +
	`Timed out waiting for quota monitor sync" logger=UnhandledError$`)

// stopShared stops the shared pair, and returns the errors that it logged.
func stopShared() (errors []string) {
	if shared == nil {
		return nil
	}
	for _, s := range []*server{shared.a, shared.b} {
		if s == nil {
			continue
		}
		s.stop()
		for _, line := range strings.Split(s.logs(), "\n") {
			if strings.Contains(line, "level=ERROR") && !harmless.MatchString(line) {
				errors = append(errors, line)
			}
		}
	}
	if shared.etcd != nil {
		shared.etcd.Close()
	}
	_ = os.RemoveAll(shared.dir)
	return errors
}
