package lab

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
	"time"
)

// A Process is a running program. It ends with the lab.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  string // file with what it printed

	ended   chan struct{} // closed when it has ended; err is set before
	err     error
	expects atomic.Bool // its end is asked for
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

// Start starts a program inside a namespace, or outside of any where in is
// nil, with env beside a plain environment.
func (l *Lab) Start(in *Namespace, name string, env []string, argv ...string) (*Process, error) {
	p := &Process{
		name:  name,
		log:   filepath.Join(l.Dir, fmt.Sprintf("%s-%d.log", name, processes.Add(1))),
		ended: make(chan struct{}),
	}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = in.command(context.Background(), argv...)
	p.cmd.Env = append(PlainEnv(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// So that nothing is left behind where the lab's process dies without a word.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := onStarter(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	l.onClose(p.Kill)
	return p, nil
}

// Kill is kill -9, and waits until the process is gone.
func (p *Process) Kill() {
	p.expects.Store(true)
	_ = p.cmd.Process.Kill() // it may be gone
	<-p.ended
}

// Stop asks the process to end, waits until it has, and returns how it ended.
func (p *Process) Stop() error {
	p.expects.Store(true)
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	select {
	case <-p.ended:
		return p.err
	case <-time.After(time.Minute):
		p.Kill()
		return fmt.Errorf("%s does not end on SIGTERM", p.name)
	}
}

// Ended is closed once the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Pid is the process's number.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Alive is an error that is ErrEnded if the process has ended.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s %w: %w\n%s", p.name, ErrEnded, errors.Join(p.err, errors.New("its last words follow")), p.Printed(30))
	default:
		return nil
	}
}

// Died is an error that is ErrEnded if the process has ended by itself.
func (p *Process) Died() error {
	if p.expects.Load() {
		return nil
	}
	return p.Alive()
}

// Await waits until check is nil, for as long as the process lives and five
// minutes at most.
func (p *Process) Await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return Until(ctx, what, func(ctx context.Context) error {
		if err := p.Alive(); err != nil {
			return err
		}
		return check(ctx)
	})
}

// Printed is the last lines of what the process printed.
func (p *Process) Printed(lines int) string {
	all, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	split := strings.Split(strings.TrimRight(string(all), "\n"), "\n")
	return strings.Join(split[max(0, len(split)-lines):], "\n")
}

// PlainEnv is this process's environment without what would leak a user's own
// clusters, credentials and proxies into a test.
func PlainEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "XB_") || name == "KUBECONFIG" || name == "NSTOWATCH" || name == "EXCLUDE" ||
			strings.HasPrefix(name, "KUBERNETES_") || strings.HasSuffix(strings.ToLower(name), "_proxy") {
			continue
		}
		env = append(env, kv)
	}
	return env
}
