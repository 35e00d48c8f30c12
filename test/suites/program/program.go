// Package program builds the programs that suites drive, and runs them for the
// length of a test. It never leaves one running.
package program

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// The programs that can be built, by the folder of the module that pins them,
// below the repository.
var sources = map[string]struct{ module, pkg string }{
	"xb":             {".", "./cmd/xb"},
	"kube-apiserver": {"test/suites", "k8s.io/kubernetes/cmd/kube-apiserver"},
	"etcdctl":        {"test/suites", "go.etcd.io/etcd/etcdctl/v3"},
	"ginkgo":         {"test/suites", "github.com/onsi/ginkgo/v2/ginkgo"},
	"kubectl":        {"test/suites", "k8s.io/kubernetes/cmd/kubectl"},
}

// kubectlVersion is a version for kubectl, which fails at its own if it has none.
const kubectlVersion = "-X k8s.io/component-base/version.gitVersion=v1.37.1"

// Build builds a program and returns its path. One that is up to date is left
// as it is; the first kube-apiserver takes minutes. Of xb, XB_BIN may name one
// that is built already.
func Build(t testing.TB, name string) string {
	t.Helper()
	source, ok := sources[name]
	if !ok {
		t.Fatalf("there is no program %s to build", name)
	}
	if given := os.Getenv("XB_BIN"); name == "xb" && given != "" {
		return given
	}
	flags := []string{}
	if name == "kubectl" {
		flags = []string{"-ldflags", kubectlVersion}
	}
	return compile(t, source.module, name, "build", append(flags, source.pkg)...)
}

// BuildTest builds the tests of a package of this module, and returns the path
// of the program.
func BuildTest(t testing.TB, pkg string) string {
	t.Helper()
	return compile(t, "test/suites", path.Base(pkg)+".test", "test", "-c", "-vet=off", pkg)
}

// compile has go write a program, unless it is there and up to date.
func compile(t testing.TB, module, name, verb string, args ...string) string {
	t.Helper()
	file := filepath.Join(repository(), ".tmp", "bin", name)
	cmd := exec.Command("go", append([]string{verb, "-o", file}, args...)...)
	cmd.Dir = filepath.Join(repository(), module)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return file
}

// repository is the root of this project's source.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Process is a program that runs.
type Process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	log   transcript
	ended chan struct{} // closed once the process is gone
}

// Start runs a program until the test ends, and kills it then. What it wrote is shown if the test
// has failed.
func Start(t testing.TB, path string, args ...string) *Process {
	t.Helper()
	return StartWith(t, nil, path, args...)
}

// StartWith is Start with more in the environment.
func StartWith(t testing.TB, env []string, path string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, name: filepath.Base(path), cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is nobody's question: it is killed
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", p.name, p.log.tail(64<<10))
		}
	})
	return p
}

// Kill ends the process as kill -9 does, and waits.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Ended is closed once the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// AwaitLine returns what follows prefix in the first line that has it, once
// the process has written one.
func (p *Process) AwaitLine(prefix string) string {
	p.t.Helper()
	for {
		changed := p.log.changed()
		if rest, ok := p.log.find(prefix); ok {
			return rest
		}
		select {
		case <-changed:
		case <-p.ended:
			p.t.Fatalf("%s ended and did not say %q", p.name, prefix)
		case <-p.t.Context().Done():
			p.t.Fatalf("%s did not say %q", p.name, prefix)
		}
	}
}

// transcript keeps what a process writes.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
	grew chan struct{} // closed, and replaced, when text grows
}

var _ io.Writer = (*transcript)(nil)

func (l *transcript) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grew != nil {
		close(l.grew)
		l.grew = nil
	}
	return l.text.Write(b)
}

func (l *transcript) changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grew == nil {
		l.grew = make(chan struct{})
	}
	return l.grew
}

func (l *transcript) find(prefix string) (rest string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := bufio.NewScanner(bytes.NewReader(l.text.Bytes()))
	for lines.Scan() {
		if _, rest, ok = strings.Cut(lines.Text(), prefix); ok {
			return rest, true
		}
	}
	return "", false
}

func (l *transcript) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.text.Bytes()
	return string(b[max(0, len(b)-n):])
}

// XB is xb etcd on a journal, at an address that outlives it.
type XB struct {
	*Process
	Endpoint string // http://HOST:PORT

	path, journal string
}

// StartXB serves the etcd API on the journal at the URL, on a free port of
// loopback, and waits until it does.
func StartXB(t testing.TB, journal string) *XB {
	t.Helper()
	x := &XB{path: Build(t, "xb"), journal: journal}
	x.start(t, "127.0.0.1:0")
	return x
}

// Restart starts xb etcd again, after Kill, at the same address.
func (x *XB) Restart() {
	x.t.Helper()
	x.start(x.t, strings.TrimPrefix(x.Endpoint, "http://"))
}

func (x *XB) start(t testing.TB, listen string) {
	t.Helper()
	x.Process = Start(t, x.path, "etcd", "--journal", x.journal, "--listen", listen)
	x.Endpoint = x.AwaitLine("Serving the etcd API at ")
}

// FileJournal is the URL of a journal that is not there yet, in a folder that
// goes when the test ends.
func FileJournal(t testing.TB) string {
	dir, err := os.MkdirTemp("", "xb-suite-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return "file://" + filepath.Join(dir, "journal")
}
