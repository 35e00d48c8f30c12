package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// childOf is the process that p started whose command line holds what.
func childOf(t *testing.T, p *process.Process, what string) int {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.Pid()))
	if err != nil || len(files) == 0 {
		process.Need(t, errors.New("/proc, to find processes that a process started"))
	}
	for _, file := range files {
		pids, _ := os.ReadFile(file) // a thread may have ended
		for _, pid := range strings.Fields(string(pids)) {
			if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), what) {
				n, err := strconv.Atoi(pid)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatalf("%s started no process with %q in its command line", p.Name(), what)
	return 0
}

// TestDevOutlivesItsServers kills each process of xb dev in turn. What is left
// goes on, and the command that xb dev prints starts the one again.
func TestDevOutlivesItsServers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder") // with a space, which a command to paste must quote
	in := withFreePorts(t)
	p := process.Spawn(t, in, "dev", []string{"HOME=" + t.TempDir()}, xbBinary, "dev", "--dir", dir)
	said := func(what string) string {
		t.Helper()
		var line string
		wait.Poll(t, 2*startsWithin, "xb dev says "+what, func(context.Context) error {
			for line = range strings.Lines(p.Printed(100)) {
				if strings.Contains(line, what) {
					return nil
				}
			}
			return errors.Join(errors.New("it has not"), p.Alive())
		})
		return strings.TrimSpace(line)
	}
	said("--watch")
	use := func(account, verb string, args ...string) {
		t.Helper()
		args = append([]string{program.Need(t, "kubectl"), "--kubeconfig", filepath.Join(dir, "kubeconfig"), "--context", account, "--request-timeout=20s", verb}, args...)
		if out, err := process.Run(t, in, nil, "", args...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	for _, c := range []struct{ name, process, other string }{
		{"tenant", "/tenant", "vendor"},
		{"vendor", "/vendor", "tenant"},
		{"store", "dev store", ""},
	} {
		if err := syscall.Kill(childOf(t, p, c.process), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		said(c.name + " ended (signal: killed)")
		if c.other != "" {
			use(c.other, "create", "configmap", "without-"+c.name)
		}
		again := said("dev start " + c.name)
		if out, err := process.Run(t, in, nil, "", "sh", "-ec", again); err != nil || !strings.Contains(out, c.name+" is ready") {
			t.Errorf("%s: %s, %v", again, out, err)
		}
		use("vendor", "create", "configmap", "with-"+c.name)
		use("tenant", "get", "configmap", "with-"+c.name)
		if out, err := process.Run(t, in, nil, "", "sh", "-ec", again); err == nil || !strings.Contains(err.Error(), "is not down") {
			t.Errorf("%s, once more: %s, %v; want it refused", again, out, err)
		}
	}
	p.StopWell(t)
	if left, err := filepath.Glob(filepath.Join(dir, "*", "down")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left; want nothing", left, err)
	}
	if out, err := process.Run(t, in, nil, "", xbBinary, "dev", "start", "tenant", "--dir", dir); err == nil || !strings.Contains(err.Error(), "no xb dev runs") {
		t.Errorf("without an xb dev: %s, %v; want it refused", out, err)
	}
}

// TestDevPorts: the ports of xb dev are nobody's defaults, and can be chosen;
// one that was chosen is not replaced by another.
func TestDevPorts(t *testing.T) {
	needNamespaces(t) // so that default ports are free
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"default": {nil, "127.0.0.1:7800 127.0.0.1:7801 127.0.0.1:7802"},
		"chosen":  {[]string{"--port", "9100"}, "127.0.0.1:9100 127.0.0.1:9101 127.0.0.1:9102"},
	} {
		t.Run(name, func(t *testing.T) {
			n := network.Make(t, "ports", "127.0.0.1")
			dir := filepath.Join(t.TempDir(), "dev")
			argv := append([]string{xbBinary, "dev", "--dir", dir}, c.flags...)
			p := process.Spawn(t, n, "dev", []string{"HOME=" + t.TempDir()}, argv...)
			wait.Poll(t, 2*startsWithin, "it is ready", func(context.Context) error {
				if _, err := os.Stat(filepath.Join(dir, "kubeconfig")); err != nil {
					return errors.Join(err, p.Alive())
				}
				return nil
			})
			if got := strings.Join(listening(t, n), " "); got != c.want {
				t.Errorf("it listens at %s; want %s", got, c.want)
			}
			if c.flags != nil {
				argv[3] = filepath.Join(t.TempDir(), "dev")
				if out, err := process.Run(t, n, nil, "", argv...); err == nil || !strings.Contains(err.Error(), "127.0.0.1:9100") || !strings.Contains(err.Error(), "--port") {
					t.Errorf("with ports that are taken: %s, %v; want a refusal that names the port and the flag", out, err)
				}
			}
			p.StopWell(t)
		})
	}
}
