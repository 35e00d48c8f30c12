// Package process runs programs: it starts them, keeps what they print, says
// how they are, and ends them by their own number. It never leaves one running:
// each dies at the latest with the process that started it.
package process

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

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// A Spec says what to start. Name, Dir and Argv are required.
type Spec struct {
	Name string             // in messages, and of the file with what it prints
	Dir  string             // where that file is
	In   *network.Namespace // where it runs; nil is this machine
	Env  []string           // beside PlainEnv
	Argv []string
}

// A Process is a program that was started.
type Process struct {
	name    string
	cmd     *exec.Cmd
	log     string        // file with what it prints
	ended   chan struct{} // closed when it has ended
	err     error         // how it ended; set before ended is closed
	expects atomic.Bool   // set before its end is asked for
}

var started atomic.Int64

// onStarter calls f on the one thread that starts processes. The thread must
// never end, because a process dies with the thread that started it.
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

// Start starts a program. The caller ends it with Kill or Stop.
func Start(s Spec) (*Process, error) {
	p := &Process{
		name:  s.Name,
		log:   filepath.Join(s.Dir, fmt.Sprintf("%s-%d.log", s.Name, started.Add(1))),
		ended: make(chan struct{}),
	}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = s.In.Command(context.Background(), s.Argv...)
	p.cmd.Env = append(PlainEnv(), s.Env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// So that nothing is left behind if this process dies without a word.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := onStarter(p.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Kill is kill -9. It waits until the process is gone.
func (p *Process) Kill() {
	p.expects.Store(true)
	_ = p.cmd.Process.Kill() // it may be gone
	<-p.ended
}

// Stop asks the process to end, waits until it has, and returns how it ended.
func (p *Process) Stop() error { return p.end(syscall.SIGTERM) }

// Interrupt is Stop by Ctrl-C.
func (p *Process) Interrupt() error { return p.end(syscall.SIGINT) }

func (p *Process) end(by syscall.Signal) error {
	p.expects.Store(true)
	_ = p.cmd.Process.Signal(by) // it may be gone
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.Kill()
		return fmt.Errorf("%s does not end on %v", p.name, by)
	}
	if p.err != nil {
		return fmt.Errorf("%s ends with %w on %v:\n%s", p.name, p.err, by, p.Printed(30))
	}
	return nil
}

// ExpectEnd says that the process may end by itself.
func (p *Process) ExpectEnd() { p.expects.Store(true) }

// Ended is closed once the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err is how the process ended. It is valid once Ended is closed.
func (p *Process) Err() error { return p.err }

// Name is what its Spec calls it.
func (p *Process) Name() string { return p.name }

// Pid is the process's number.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Alive is an error that is wait.ErrNever if the process has ended.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s %w: %s\n%s", p.name, wait.ErrNever, p.cmd.ProcessState, p.Printed(30))
	default:
		return nil
	}
}

// Died is an error that is wait.ErrNever if the process has ended by itself.
func (p *Process) Died() error {
	if p.expects.Load() {
		return nil
	}
	return p.Alive()
}

// Await waits until check returns nil, for as long as the process lives and
// five minutes at most.
func (p *Process) Await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return wait.Until(ctx, what, func(ctx context.Context) error {
		if err := p.Alive(); err != nil {
			return err
		}
		return check(ctx)
	})
}

// AwaitLine waits for a line with the words, and returns what follows them.
func (p *Process) AwaitLine(ctx context.Context, words string) (rest string, err error) {
	err = p.Await(ctx, p.name+" prints "+words, func(context.Context) error {
		printed, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		_, after, ok := strings.Cut(string(printed), words)
		line, _, whole := strings.Cut(after, "\n")
		if !ok || !whole {
			return errors.New("it has not")
		}
		rest = line
		return nil
	})
	return rest, err
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
// clusters, credentials and proxies into a test, or would configure xb.
func PlainEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "AWS_"), strings.HasPrefix(name, "XB_"), strings.HasPrefix(name, "KUBERNETES_"):
		case name == "KUBECONFIG", name == "NSTOWATCH", name == "EXCLUDE":
		case strings.HasSuffix(strings.ToLower(name), "_proxy"):
		default:
			env = append(env, kv)
		}
	}
	return append(env, "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null")
}
