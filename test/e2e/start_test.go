package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// toPaste are the lines that a command tells its user to type.
func toPaste(printed string) (lines []string) {
	for line := range strings.Lines(printed) {
		if strings.HasPrefix(line, "  export ") || strings.HasPrefix(line, "  kubectl ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// TestServerWithoutFlags starts a server as the README does first.
func TestServerWithoutFlags(t *testing.T) {
	needNamespaces(t) // so that the default port is free
	n := network.Make(t, "alone", "127.0.0.1")
	home := []string{"HOME=" + t.TempDir(), "XDG_DATA_HOME=", kubectlInPath(t)}
	start := func() (*process.Process, string) {
		p := process.Spawn(t, n, "server", home, xbBinary, "server")
		var lines []string
		wait.Poll(t, startsWithin, "the server says what to type", func(context.Context) error {
			if lines = toPaste(p.Printed(100)); len(lines) < 2 {
				return errors.Join(errors.New("it has not"), p.Alive())
			}
			return nil
		})
		return p, strings.Join(lines, "\n")
	}
	shell := func(script string) string {
		t.Helper()
		out, err := process.Run(t, n, home, "", "sh", "-ec", script)
		if err != nil {
			t.Fatalf("%s\n%v", script, err)
		}
		return out
	}
	p, lines := start()
	if log := p.Printed(1000); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the first start of a server warns of something:\n%s", log)
	}
	if got := shell(lines); !strings.Contains(got, "default") || !strings.Contains(got, "kube-system") {
		t.Errorf("what to type prints %s", got)
	}
	if got, want := listening(t, n), []string{"127.0.0.1:6443"}; !slices.Equal(got, want) {
		t.Errorf("ports are open at %v; want %v only", got, want)
	}
	shell(lines + "\nkubectl create configmap kept --from-literal=a=1")
	p.StopWell(t)
	p, lines = start()
	if got := shell(lines + "\nkubectl get configmap kept -o jsonpath={.data.a}"); !strings.HasSuffix(got, "1") {
		t.Errorf("after a restart, kept is %s", got)
	}
	p.StopWell(t)
}

// TestDev starts the tour of the README, types what it says, stops it with
// Ctrl-C, and starts it again.
func TestDev(t *testing.T) {
	needNamespaces(t)
	n := network.Make(t, "dev", "127.0.0.1")
	dir := filepath.Join(t.TempDir(), "dev")
	home := []string{"HOME=" + t.TempDir(), kubectlInPath(t)}
	start := func(flags ...string) (*process.Process, []string) {
		p := process.Spawn(t, n, "dev", home, append([]string{xbBinary, "dev", "--dir", dir}, flags...)...)
		var lines []string
		wait.Poll(t, 2*startsWithin, "xb dev says what to type", func(context.Context) error {
			if lines = toPaste(p.Printed(100)); len(lines) < 4 {
				return errors.Join(errors.New("it has not"), p.Alive())
			}
			return nil
		})
		return p, lines
	}
	interrupt := func(p *process.Process) {
		t.Helper()
		if err := p.Interrupt(); err != nil {
			t.Error(err)
		}
		wait.Poll(t, 10*time.Second, "nothing of xb dev is left", func(context.Context) error {
			if left := listening(t, n); len(left) > 0 {
				return fmt.Errorf("somebody listens at %v", left)
			}
			return nil
		})
	}

	p, lines := start()
	if len(lines) != 4 || !strings.HasSuffix(lines[3], "--watch") {
		t.Fatalf("xb dev says to type:\n%s\nwant four lines, the last of which watches", strings.Join(lines, "\n"))
	}
	for _, addr := range listening(t, n) {
		if !strings.HasPrefix(addr, "127.0.0.1:") {
			t.Errorf("a port is open at %s, which is not on loopback", addr)
		}
	}
	info, err := os.Stat(strings.TrimPrefix(lines[0], "export KUBECONFIG="))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has mode %v, %v; want 0600", info.Mode(), err)
	}
	if out, err := process.Run(t, n, home, "", "sh", "-ec", strings.Join(lines[:3], "\n")); err != nil {
		t.Fatalf("typing the first three lines gives %s, %v", out, err)
	}
	watch := process.Spawn(t, n, "watch", home, "sh", "-ec", lines[0]+"\nexec "+lines[3])
	wait.Poll(t, 60*time.Second, "the fourth line shows the object", func(context.Context) error {
		if shown := watch.Printed(10); !strings.Contains(shown, "NAMESPACE") || strings.Count(shown, "\n") < 1 {
			return errors.Join(fmt.Errorf("it shows %q", shown), watch.Alive())
		}
		return nil
	})
	watch.Kill()
	interrupt(p)

	p, lines = start("--latency", "20ms")
	get := strings.Replace(lines[3], " --watch", " --output=name", 1)
	if out, err := process.Run(t, n, home, "", "sh", "-ec", lines[0]+"\n"+get); err != nil || !strings.HasPrefix(out, "database.example.xbernetes.io/") {
		t.Errorf("after a second start there is %s, %v", out, err)
	}
	interrupt(p)
}
