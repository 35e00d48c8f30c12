package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// A namespace is a network namespace: a machine of its own, as far as the
// network goes. The nil namespace is this machine.
type namespace struct {
	name string
	ip   string // where others reach it
}

// command is a program that will run inside.
func (n *namespace) command(ctx context.Context, argv ...string) *exec.Cmd {
	if n != nil {
		argv = append([]string{"ip", "netns", "exec", n.name}, argv...) // it execs: the pid stays
	}
	return exec.CommandContext(ctx, argv[0], argv[1:]...)
}

// inside calls f on a thread that is inside. Sockets that f opens stay there.
func (n *namespace) inside(f func() error) error {
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
func (n *namespace) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	var conn net.Conn
	err := n.inside(func() (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// connects opens a TCP connection from inside and closes it.
func (n *namespace) connects(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := n.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// ping sends an ICMP echo from inside and waits for the answer.
func (n *namespace) ping(ip string) error {
	return n.inside(func() error {
		conn, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
		if err != nil {
			return err
		}
		defer conn.Close()
		msg := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1, Data: []byte("xb")}}
		b, err := msg.Marshal(nil)
		if err != nil {
			return err
		}
		if _, err := conn.WriteTo(b, &net.IPAddr{IP: net.ParseIP(ip)}); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		buf := make([]byte, 1500)
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return err
			}
			answer, err := icmp.ParseMessage(1, buf[:size])
			if err == nil && answer.Type == ipv4.ICMPTypeEchoReply && from.String() == ip {
				return nil
			}
		}
	})
}

// routeTo is the route inside to an address, or an error if there is none.
func (n *namespace) routeTo(t testing.TB, ip string) (string, error) {
	return run(t, n, nil, "", "ip", "route", "get", ip)
}

// isolation is three namespaces: the vendor's and the tenant's machine each
// have one cable to the store's, and nothing else. The store's passes nothing on.
type isolation struct {
	vendor, tenant, store *namespace
}

// storeIP is an address of the store's machine that both cables lead to.
const storeIP = "10.200.0.1"

// needNamespaces skips the test where network namespaces cannot be made.
func needNamespaces(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		need(t, "network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		need(t, "the program ip (Debian's iproute2) is not installed")
	}
	trial := fmt.Sprintf("xbe2e-%d-%d-trial", os.Getpid(), processes.Add(1))
	if out, err := exec.Command("ip", "netns", "add", trial).CombinedOutput(); err != nil {
		need(t, fmt.Sprintf("network namespaces cannot be made here: %v %s", err, out))
	}
	_ = exec.Command("ip", "netns", "del", trial).Run()
	removeStale()
}

// newNamespace makes a namespace that has nothing but its loopback, and is
// removed when the test ends.
func newNamespace(t testing.TB, name, ip string) *namespace {
	t.Helper()
	n := &namespace{fmt.Sprintf("xbe2e-%d-%d-%s", os.Getpid(), processes.Add(1), name), ip}
	if out, err := run(t, nil, nil, "", "ip", "netns", "add", n.name); err != nil {
		t.Fatal(err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", n.name).CombinedOutput(); err != nil {
			t.Errorf("remove network namespace %s: %v %s", n.name, err, out)
		}
	})
	n.configure(t, "ip link set lo up")
	return n
}

// isolate makes the three namespaces.
func isolate(t testing.TB) isolation {
	t.Helper()
	needNamespaces(t)
	net := isolation{
		vendor: newNamespace(t, "vendor", "10.200.1.2"),
		tenant: newNamespace(t, "tenant", "10.200.2.2"),
		store:  newNamespace(t, "store", storeIP),
	}
	net.store.configure(t, "ip address add "+storeIP+"/32 dev lo")
	for i, n := range []*namespace{net.vendor, net.tenant} {
		far, gateway := "to-"+[]string{"vendor", "tenant"}[i], fmt.Sprintf("10.200.%d.1", i+1)
		n.configure(t, fmt.Sprintf("ip link add to-store type veth peer name %s netns %s", far, net.store.name))
		net.store.configure(t, fmt.Sprintf("ip address add %s/30 dev %s", gateway, far))
		net.store.configure(t, fmt.Sprintf("ip link set %s up", far))
		n.configure(t, fmt.Sprintf("ip address add %s/30 dev to-store", n.ip))
		n.configure(t, "ip link set to-store up")
		n.configure(t, fmt.Sprintf("ip route add %s/32 via %s", storeIP, gateway))
	}
	if err := net.store.inside(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward" /* the thread's own */, []byte("0"), 0)
	}); err != nil {
		t.Fatalf("switch forwarding off on the store's machine: %v", err)
	}
	return net
}

// listening are the addresses that sockets inside listen on, in order.
func (n *namespace) listening(t testing.TB) (all []string) {
	t.Helper()
	out, err := run(t, n, nil, "", "cat", "/proc/net/tcp", "/proc/net/tcp6")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != "0A" { // LISTEN
			continue
		}
		host, port, _ := strings.Cut(fields[1], ":")
		number, err := strconv.ParseUint(port, 16, 16)
		if err != nil {
			t.Fatalf("read %q: %v", line, err)
		}
		if host == "0100007F" {
			host = "127.0.0.1"
		}
		all = append(all, fmt.Sprintf("%s:%d", host, number))
	}
	slices.Sort(all)
	return all
}

func (n *namespace) configure(t testing.TB, command string) {
	t.Helper()
	if _, err := run(t, n, nil, "", strings.Fields(command)...); err != nil {
		t.Fatalf("configure network namespace: %v", err)
	}
}

// removeStale removes what earlier runs that were killed have left.
func removeStale() {
	entries, _ := os.ReadDir("/run/netns")
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), "xbe2e-")
		pid, err := strconv.Atoi(strings.SplitN(rest, "-", 2)[0])
		if ok && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = exec.Command("ip", "netns", "del", e.Name()).Run()
		}
	}
}

// prove shows that both accounts reach the store and neither reaches the
// other, whose ports are open to itself.
func (net isolation) prove(t testing.TB, storeAddr, vendorAddr, tenantAddr string) {
	t.Helper()
	if forward, err := run(t, net.store, nil, "", "cat", "/proc/sys/net/ipv4/ip_forward"); err != nil || strings.TrimSpace(forward) != "0" {
		t.Errorf("the store's machine passes packets on: ip_forward is %q (%v)", forward, err)
	}
	sides := []struct {
		name, own, other string
		from, to         *namespace
	}{
		{"vendor", vendorAddr, tenantAddr, net.vendor, net.tenant},
		{"tenant", tenantAddr, vendorAddr, net.tenant, net.vendor},
	}
	for _, s := range sides {
		if err := s.from.connects(t.Context(), storeAddr); err != nil {
			t.Errorf("the %s cannot connect to the store: %v", s.name, err)
		}
		if err := s.from.ping(storeIP); err != nil {
			t.Errorf("the %s cannot ping the store: %v", s.name, err)
		}
		if err := s.from.connects(t.Context(), s.own); err != nil {
			t.Errorf("the %s cannot connect to its own server: %v", s.name, err)
		}
		if err := s.from.connects(t.Context(), s.other); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("the %s connects to %s, the other account: %v; want network is unreachable", s.name, s.other, err)
		}
		if err := s.from.ping(s.to.ip); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("the %s pings %s, the other account: %v; want network is unreachable", s.name, s.to.ip, err)
		}
		if route, err := s.from.routeTo(t, s.to.ip); err == nil {
			t.Errorf("the %s has a route to the other account: %s", s.name, route)
		}
	}
}
