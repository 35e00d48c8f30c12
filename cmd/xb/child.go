package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/xbernetes/xbernetes/internal/privatefile"
)

// child is another xb process. It lives no longer than this one: it stops
// when its standard input ends.
type child struct {
	name  string
	args  []string
	env   []string // beside our own, of which nothing about AWS is handed on
	log   string   // file that gets what it prints; made anew
	ready string   // file that it writes when it is ready, or ""
}

// envStopOnEOF tells a process to stop when its standard input ends.
const envStopOnEOF = "XB_STOP_ON_STDIN_EOF"

const stopWait = 15 * time.Second

// run runs the process until ctx ends, which gives nil, or the process does,
// which is an error.
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
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s stopped by itself (%w); its last words, of %s:\n%s", c.name, err, c.log, lastLines(c.log))
}

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
