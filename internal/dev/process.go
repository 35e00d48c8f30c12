package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// process is another xb process, which may end and be started again. It lives no
// longer than the process that keeps it: it stops when its standard input ends.
type process struct {
	name  string
	args  []string
	env   []string // beside those of this process, of which none about AWS is handed on
	log   string   // the file for what it prints, emptied at each start
	ready string   // the file that it writes once it is ready. Invariant: not there while it is down
	down  string   // the file that is there while it is down; removing it asks keep for a start

	pid atomic.Int64 // of the newest start
}

// envStopOnEOF tells a process to stop when its standard input ends.
const envStopOnEOF = "XB_STOP_ON_STDIN_EOF"

const stopWait = 15 * time.Second

// errEarly is returned by keep if the process ended before it was ready for the
// first time.
var errEarly = errors.New("ended before it was ready")

// keep runs the process until ctx ends, and then returns nil. If the process ends by
// itself, keep says so, and starts it again once somebody asks for it. A process
// that ends before it is ready for the first time would do so again: keep returns
// errEarly. again is the command that asks for a start.
func (p *process) keep(ctx context.Context, say printer, again string) error {
	defer os.Remove(p.down)
	for first := true; ; first = false {
		if err := errors.Join(removeIfThere(p.down), removeIfThere(p.ready)); err != nil {
			return err
		}
		end := p.run(ctx)
		wasReady := written(p.ready)
		if err := removeIfThere(p.ready); ctx.Err() != nil || err != nil {
			return err
		}
		if first && !wasReady {
			return fmt.Errorf("%s %w (%w); its last words, of %s:\n%s", p.name, errEarly, end, p.log, lastLines(p.log))
		}
		if err := privatefile.Write(p.down, []byte(end.Error()+"\n")); err != nil {
			return err
		}
		say("\n%s ended (%v); the others go on. What it printed is in %s. To start it again:\n\n  %s\n\n", p.name, end, p.log, again)
		if until(ctx, func() bool { return !written(p.down) }) != nil {
			return nil // ctx ended
		}
		say("%s is started again\n", p.name)
	}
}

// errExited is returned by run for a process that ended without a complaint.
var errExited = errors.New("exit status 0")

// run runs the process until it ends, and returns how it ended, never nil.
func (p *process) run(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := privatefile.Create(p.log)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, exe, p.args...)
	cmd.Env = append(withoutAWS(os.Environ()), append(p.env, envStopOnEOF+"=1")...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches this process alone, which stops the others in order
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopWait
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		return err
	}
	p.pid.Store(int64(cmd.Process.Pid))
	if err := cmd.Wait(); err != nil {
		return err
	}
	return errExited
}

// start asks the xb dev that keeps the process, which is down, to start it again,
// and waits until it is ready.
func (p *process) start(ctx context.Context) error {
	if err := os.Remove(p.down); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not down: it runs, or no xb dev does", p.name)
	} else if err != nil {
		return fmt.Errorf("ask for %s to be started: %w", p.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if until(ctx, func() bool { return written(p.ready) || written(p.down) }) != nil {
		return fmt.Errorf("%s is not ready after %v; look at %s, and whether xb dev still runs", p.name, startWait, p.log)
	}
	if !written(p.ready) {
		return fmt.Errorf("%s ended again; its last words, of %s:\n%s", p.name, p.log, lastLines(p.log))
	}
	return nil
}

// startWait bounds how long start waits for the process to be ready.
const startWait = 90 * time.Second

// withoutAWS returns an environment without the user's own AWS settings, because
// variables would win over an account's credentials, which are in a file.
func withoutAWS(env []string) []string {
	return slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "AWS_") })
}

// lastLines returns the last five lines of a file.
func lastLines(file string) []byte {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-5):], []byte("\n"))
}

// written says whether there is a file that is not blank.
func written(file string) bool {
	data, err := os.ReadFile(file)
	return err == nil && len(bytes.TrimSpace(data)) > 0
}

func removeIfThere(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

const pollEvery = 50 * time.Millisecond

// until waits until ok returns true. It returns the error of ctx if that ends first.
func until(ctx context.Context, ok func() bool) error {
	ticks := time.NewTicker(pollEvery)
	defer ticks.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
	}
	return ctx.Err()
}

// StopWithParent returns a context that ends when standard input does, if an xb dev
// started this process; any other process gets ctx.
func StopWithParent(ctx context.Context) context.Context {
	if os.Getenv(envStopOnEOF) == "" {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // any end will do
		cancel()
	}()
	return ctx
}
