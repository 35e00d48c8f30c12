package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Poll asks every few milliseconds until check returns nil, and fails the test
// with check's last error once the time is over. It returns how long it took.
func Poll(t testing.TB, within time.Duration, what string, check func(context.Context) error) time.Duration {
	t.Helper()
	started := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return time.Since(started)
		}
		if errors.Is(err, errEnded) {
			t.Fatalf("%s: %v", what, err)
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, within, last)
		case <-tick.C:
		}
	}
}

var errEnded = errors.New("has ended")

// A Process is a program that a test started. It is killed when the test ends.
type Process struct {
	name    string
	cmd     *exec.Cmd
	log     string
	ended   chan struct{} // closed when it has ended; err is set before
	err     error
	expects atomic.Bool // its end is the test's doing
}

var started atomic.Int64

// onStarter calls f on the one thread that starts processes, which must never
// end: a process dies with the thread that started it.
var onStarter = sync.OnceValue(func() func(func() error) error {
	type call struct {
		f    func() error
		done chan error
	}
	calls := make(chan call)
	go func() {
		runtime.LockOSThread()
		for c := range calls {
			c.done <- c.f()
		}
	}()
	return func(f func() error) error {
		c := call{f, make(chan error, 1)}
		calls <- c
		return <-c.done
	}
})

// Spawn starts a program. If the test fails, the end of what it printed is shown.
func Spawn(t testing.TB, name string, env []string, argv ...string) *Process {
	t.Helper()
	p := &Process{name: name, log: filepath.Join(t.TempDir(), fmt.Sprintf("%s-%d.log", name, started.Add(1))), ended: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append(plainEnv(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := onStarter()(p.cmd.Start); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		died := !p.running() && !p.expects.Load()
		p.Kill()
		if died {
			t.Errorf("%s ended by itself: %v", name, p.err)
		}
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, p.Printed(60))
		}
	})
	return p
}

func (p *Process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill is kill -9, and waits until the process is gone.
func (p *Process) Kill() {
	p.expects.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Alive is an error that ends a Poll if the process has ended.
func (p *Process) Alive() error {
	if p.running() {
		return nil
	}
	return fmt.Errorf("%s %w: %v\n%s", p.name, errEnded, p.err, p.Printed(30))
}

// Printed is the last lines that the process printed.
func (p *Process) Printed(lines int) string {
	data, _ := os.ReadFile(p.log)
	all := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// Memory is what the process holds in memory, in bytes.
func (p *Process) Memory(t testing.TB) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kB int64
			if _, err := fmt.Sscanf(rest, "%d kB", &kB); err == nil {
				return kB << 10
			}
		}
	}
	t.Fatal("the kernel does not say how much memory the process holds")
	return 0
}

// Run runs a program to its end and returns what it printed on standard output.
func Run(t testing.TB, env []string, stdin string, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(plainEnv(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), errors.Join(fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(errOut.String())), ctx.Err())
	}
	return out.String(), nil
}

// plainEnv is this process's environment without what would lead a program to a
// user's own clusters and proxies.
func plainEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "XB_") || name == "KUBECONFIG" || strings.HasSuffix(strings.ToLower(name), "_proxy") {
			continue
		}
		env = append(env, kv)
	}
	return env
}

// FreePort is a port on loopback that nobody listens on now.
func FreePort(t testing.TB) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	_, port, err := net.SplitHostPort(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// WriteFile writes a file that only the test's user may read.
func WriteFile(t testing.TB, path, text string) {
	t.Helper()
	write(t, path, []byte(text))
}
