package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Namespace is a network namespace: a machine of its own, as far as the
// network goes. The nil Namespace is this machine.
type Namespace struct {
	name string
}

// prefix of the names of all namespaces; the number of the process follows.
const prefix = "xblab-"

// CanHaveNodes is nil where this machine can make network namespaces, and
// says else what is missing.
func CanHaveNodes() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the program %s is not installed", program)
		}
	}
	trial := fmt.Sprintf("%s%d-trial", prefix, os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", trial).CombinedOutput(); err != nil {
		return fmt.Errorf("network namespaces cannot be made here: %w: %s", err, out)
	}
	return exec.Command("ip", "netns", "del", trial).Run()
}

// command is a program that will run inside.
func (n *Namespace) command(ctx context.Context, argv ...string) *exec.Cmd {
	if n != nil {
		argv = append([]string{"ip", "netns", "exec", n.name}, argv...) // it execs: the pid stays
	}
	return exec.CommandContext(ctx, argv[0], argv[1:]...)
}

// inside calls f on a thread that is inside. Sockets that f opens stay there.
func (n *Namespace) inside(f func() error) error {
	if n == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		file, err := os.Open("/run/netns/" + n.name)
		if err == nil {
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
			file.Close()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// DialContext connects from inside. The address is an IP address: a name would
// be looked up on another thread.
func (n *Namespace) DialContext(ctx context.Context, proto, addr string) (net.Conn, error) {
	var conn net.Conn
	err := n.inside(func() (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, proto, addr)
		return err
	})
	return conn, err
}

// Listen listens inside.
func (n *Namespace) Listen(addr string) (net.Listener, error) {
	var lis net.Listener
	err := n.inside(func() (err error) {
		lis, err = net.Listen("tcp", addr)
		return err
	})
	return lis, err
}

// sysctl sets a setting of the kernel inside.
func (n *Namespace) sysctl(path, value string) error {
	return n.inside(func() error {
		return os.WriteFile("/proc/sys/"+path, []byte(value), 0)
	})
}

// newNamespace makes a namespace that has nothing but its loopback.
func (l *Lab) newNamespace(name string) (*Namespace, error) {
	n := &Namespace{fmt.Sprintf("%s%d-%d-%s", prefix, os.Getpid(), processes.Add(1), name)}
	if err := ipCommand(nil, "netns add "+n.name); err != nil {
		return nil, err
	}
	l.onClose(func() { _ = ipCommand(nil, "netns del "+n.name) }) // it may be gone
	return n, ipCommand(n, "link set lo up")
}

// ipCommand runs ip inside.
func ipCommand(n *Namespace, command string) error {
	out, err := n.command(context.Background(), append([]string{"ip"}, strings.Fields(command)...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", command, err, out)
	}
	return nil
}

// all runs commands of ip inside until one fails.
func (n *Namespace) all(commands ...string) error {
	for _, command := range commands {
		if err := ipCommand(n, command); err != nil {
			return err
		}
	}
	return nil
}

// removeStale removes what labs that were killed have left.
func removeStale() {
	entries, _ := os.ReadDir("/run/netns")
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), prefix)
		pid, err := strconv.Atoi(strings.SplitN(rest, "-", 2)[0])
		if ok && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = ipCommand(nil, "link del "+cablePrefix+strconv.Itoa(pid)) // one is enough, and takes its routes with it
			_ = ipCommand(nil, "netns del "+e.Name())
		}
	}
}
