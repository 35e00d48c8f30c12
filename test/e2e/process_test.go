package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// poll asks every few milliseconds until check returns nil, and fails the test
// with check's last error once the time is over.
func poll(t testing.TB, within time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	if err := pollErr(t.Context(), within, what, check); err != nil {
		t.Fatal(err)
	}
}

func pollErr(ctx context.Context, within time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v: %w", what, within, last)
		case <-tick.C:
		}
	}
}

// A process is a program that a test started. It is killed when the test ends.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string // file with what it printed

	ended   chan struct{} // closed when it has ended; err is set before
	err     error
	expects atomic.Bool // its end is the test's doing
}

var processes atomic.Int64

// onStarter calls f on the one thread that starts processes. It must never
// end, because a process dies with the thread that started it.
var onStarter = func() func(f func() error) error {
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
}()

// spawn starts a program inside a network namespace, or outside of any if in is nil.
func spawn(t testing.TB, in *namespace, name string, env []string, argv ...string) *process {
	t.Helper()
	p := &process{
		name:  name,
		log:   filepath.Join(t.TempDir(), fmt.Sprintf("%s-%d.log", name, processes.Add(1))),
		ended: make(chan struct{}),
	}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd = in.command(context.Background(), argv...)
	p.cmd.Env = append(plainEnv(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// So that nothing is left behind where the test dies without a word.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := onStarter(p.cmd.Start); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		died := !p.running() && !p.expects.Load()
		p.kill()
		if died {
			t.Errorf("%s ended by itself: %v", name, p.err)
		}
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, p.printed(60))
		}
	})
	return p
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// kill is kill -9, and waits until the process is gone.
func (p *process) kill() {
	p.expects.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// stop asks the process to end, and fails the test if it does not end well.
func (p *process) stop(t testing.TB) {
	t.Helper()
	p.expects.Store(true)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s does not stop on SIGTERM", p.name)
	}
	if p.err != nil {
		t.Fatalf("%s stops with %v:\n%s", p.name, p.err, p.printed(30))
	}
}

// printed is the last lines of what it printed.
func (p *process) printed(lines int) string {
	all, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	split := strings.Split(strings.TrimRight(string(all), "\n"), "\n")
	return strings.Join(split[max(0, len(split)-lines):], "\n")
}

// errEnded ends a poll at once: what it waits for cannot come.
var errEnded = errors.New("has ended")

// alive is an error if the process has ended, for use in polls.
func (p *process) alive() error {
	if p.running() {
		return nil
	}
	return fmt.Errorf("%s %w: %v\n%s", p.name, errEnded, p.err, p.printed(30))
}

// run runs a program to its end and returns what it printed on standard output.
func run(t testing.TB, in *namespace, env []string, stdin string, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := in.command(ctx, argv...)
	cmd.Env = append(plainEnv(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if err != nil {
		err = errors.Join(fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(errOut.String())), ctx.Err())
	}
	return out.String(), err
}

// plainEnv is this process's environment without what would leak a user's own
// clusters, credentials and proxies into a test.
func plainEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		lower := strings.ToLower(name)
		if strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "XB_") || name == "KUBECONFIG" || strings.HasSuffix(lower, "_proxy") {
			continue
		}
		env = append(env, kv)
	}
	return append(env, "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null")
}
