// Package network makes machines out of network namespaces, and finds free
// ports. It never changes this machine's own network, but for what its callers
// ask of the nil Namespace.
package network

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
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A Namespace is a network namespace: a machine of its own, as far as the
// network goes. The nil Namespace is this machine.
type Namespace struct {
	Name string
	IP   string // where others reach it; its maker says so, and may leave it empty
}

// prefix begins the names of all namespaces; the number of the process follows.
const prefix = "xblab-"

var made atomic.Int64

// Possible is nil if this machine can make network namespaces, and says
// otherwise what is missing.
func Possible() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return errors.New("the program ip (Debian's iproute2) is not installed")
	}
	trial := &Namespace{Name: uniqueName("trial")}
	if err := (*Namespace)(nil).Do("netns add " + trial.Name); err != nil {
		return fmt.Errorf("network namespaces cannot be made here: %w", err)
	}
	removeStale()
	return trial.Remove()
}

func uniqueName(name string) string {
	return fmt.Sprintf("%s%d-%d-%s", prefix, os.Getpid(), made.Add(1), name)
}

// New makes a namespace that has nothing but its loopback. Its maker removes it.
func New(name string) (*Namespace, error) {
	n := &Namespace{Name: uniqueName(name)}
	if err := (*Namespace)(nil).Do("netns add " + n.Name); err != nil {
		return nil, err
	}
	return n, n.Do("link set lo up")
}

// Make is New for a test, which removes the namespace when it ends.
func Make(t testing.TB, name, ip string) *Namespace {
	t.Helper()
	n, err := New(name)
	if n != nil {
		t.Cleanup(func() {
			if err := n.Remove(); err != nil {
				t.Error(err)
			}
		})
		n.IP = ip
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Remove removes the namespace, and with it the cables that end there.
func (n *Namespace) Remove() error { return (*Namespace)(nil).Do("netns del " + n.Name) }

// Command is a program that will run inside.
func (n *Namespace) Command(ctx context.Context, argv ...string) *exec.Cmd {
	if n != nil {
		argv = append([]string{"ip", "netns", "exec", n.Name}, argv...) // it execs: the pid stays
	}
	return exec.CommandContext(ctx, argv[0], argv[1:]...)
}

// Do runs commands of the program ip inside, until one fails.
func (n *Namespace) Do(commands ...string) error {
	for _, command := range commands {
		out, err := n.Command(context.Background(), append([]string{"ip"}, strings.Fields(command)...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, out)
		}
	}
	return nil
}

// Inside calls f on a thread that is inside. Sockets that f opens stay there.
func (n *Namespace) Inside(f func() error) error {
	if n == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		file, err := os.Open("/run/netns/" + n.Name)
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
	err := n.Inside(func() (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, proto, addr)
		return err
	})
	return conn, err
}

// Listen listens inside.
func (n *Namespace) Listen(addr string) (net.Listener, error) {
	var lis net.Listener
	err := n.Inside(func() (err error) {
		lis, err = net.Listen("tcp", addr)
		return err
	})
	return lis, err
}

// Sysctl sets a setting of the kernel inside, at a path such as
// net/ipv4/ip_forward.
func (n *Namespace) Sysctl(path, value string) error {
	return n.Inside(func() error {
		return os.WriteFile("/proc/sys/"+path, []byte(value), 0)
	})
}

// HostCable is the name of this machine's end of this process's one cable into
// a namespace.
func HostCable() string { return cableOf(os.Getpid()) }

func cableOf(pid int) string { return "xl" + strconv.Itoa(pid) }

// removeStale removes what processes that were killed have left.
func removeStale() {
	entries, _ := os.ReadDir("/run/netns")
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), prefix)
		pid, err := strconv.Atoi(strings.SplitN(rest, "-", 2)[0])
		if ok && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			host := (*Namespace)(nil)
			_ = host.Do("link del " + cableOf(pid)) // it may be gone; its routes go with it
			_ = host.Do("netns del " + e.Name())
		}
	}
}

// FreeAddr is a TCP address of the host that nobody listens on now.
func FreeAddr(host string) string {
	lis, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		panic(err) // a machine without a free port runs no lab
	}
	defer lis.Close()
	return lis.Addr().String()
}

// FreePort is a port of loopback that nobody listens on now.
func FreePort() string {
	_, port, _ := net.SplitHostPort(FreeAddr("127.0.0.1"))
	return port
}
