package main

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

// child is another xb process, which may end and be started again. It lives no
// longer than this process: it stops when its standard input ends.
type child struct {
	name  string
	args  []string
	env   []string // beside our own, of which nothing about AWS is handed on
	log   string   // file that gets what it prints; made anew at each start
	ready string   // file that it writes once it is ready; it is there no longer than the process
	down  string   // file that is there while it is down; who removes it asks for it to be started

	pid atomic.Int64 // of the process that was started last
}

// envStopOnEOF tells a process to stop when its standard input ends.
const envStopOnEOF = "XB_STOP_ON_STDIN_EOF"

const stopWait = 15 * time.Second

// errEarly is returned by keep if a child ended before it was ready for the
// first time.
var errEarly = errors.New("ended before it was ready")

// keep runs the child until ctx ends, which gives nil. A child that ends by
// itself is said to be down, and is started again once somebody asks for it;
// one that was not ready even once will not be any better, and is an error.
func (c *child) keep(ctx context.Context, say func(format string, args ...any), again string) error {
	defer os.Remove(c.down)
	for first := true; ; first = false {
		if err := errors.Join(removeIfThere(c.down), removeIfThere(c.ready)); err != nil {
			return err
		}
		err := c.run(ctx)
		wasReady := written(c.ready)
		if rerr := removeIfThere(c.ready); ctx.Err() != nil || rerr != nil {
			return rerr
		}
		if first && !wasReady {
			return fmt.Errorf("%s %w (%w); its last words, of %s:\n%s", c.name, errEarly, err, c.log, lastLines(c.log))
		}
		if err := privatefile.Write(c.down, []byte(err.Error()+"\n")); err != nil {
			return err
		}
		say("\n%s ended (%v); the others go on. What it printed is in %s. To start it again:\n\n  %s\n\n", c.name, err, c.log, again)
		if until(ctx, func() bool { return !written(c.down) }) != nil {
			return nil // ctx ended
		}
		say("%s is started again\n", c.name)
	}
}

// errExited is how a process ended that says that nothing is wrong.
var errExited = errors.New("exit status 0")

// run runs the process until it ends, and says how.
func (c *child) run(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := privatefile.Create(c.log)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, exe, c.args...)
	cmd.Env = append(withoutAWS(os.Environ()), append(c.env, envStopOnEOF+"=1")...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us to pass on, in order
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
	c.pid.Store(int64(cmd.Process.Pid))
	if err := cmd.Wait(); err != nil {
		return err
	}
	return errExited
}

// start asks the process that keeps the child, which is down, to start it
// again, and waits until it is ready.
func (c *child) start(ctx context.Context) error {
	if err := os.Remove(c.down); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not down: it runs, or no xb dev does", c.name)
	} else if err != nil {
		return fmt.Errorf("ask for %s to be started: %w", c.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if until(ctx, func() bool { return written(c.ready) || written(c.down) }) != nil {
		return fmt.Errorf("%s is not ready after %v; look at %s, and whether xb dev still runs", c.name, startWait, c.log)
	}
	if !written(c.ready) {
		return fmt.Errorf("%s ended again; its last words, of %s:\n%s", c.name, c.log, lastLines(c.log))
	}
	return nil
}

// startWait bounds how long a command waits for a child to be ready.
const startWait = 90 * time.Second

// withoutAWS is an environment without the user's own AWS settings: those in
// variables would win over an account's credentials, which are in a file.
func withoutAWS(env []string) []string {
	return slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "AWS_") })
}

// lastLines is the end of a file, for a person.
func lastLines(file string) []byte {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-5):], []byte("\n"))
}

// written says whether a file is there with something in it.
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

// until waits until ok, or returns the error of ctx.
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

// stopWithParent ends the context when standard input ends, if a parent
// process asked for it.
func stopWithParent(ctx context.Context) context.Context {
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
