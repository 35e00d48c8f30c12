package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// connects opens a TCP connection from inside and closes it.
func connects(ctx context.Context, from *network.Namespace, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := from.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// ping sends an ICMP echo from inside and waits for the answer.
func ping(from *network.Namespace, ip string) error {
	return from.Inside(func() error {
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
func routeTo(t testing.TB, from *network.Namespace, ip string) (string, error) {
	return process.Run(t, from, nil, "", "ip", "route", "get", ip)
}

// isolation is three namespaces: the vendor's and the tenant's machine each
// have one cable to the store's, and nothing else. The store's passes nothing on.
type isolation struct {
	vendor, tenant, store *network.Namespace
}

// storeIP is an address of the store's machine that both cables lead to.
const storeIP = "10.200.0.1"

// needNamespaces skips the test where network namespaces cannot be made.
func needNamespaces(t testing.TB) {
	t.Helper()
	process.Need(t, network.Possible())
}

// withFreePorts is a namespace in which nobody takes a port that a program has
// just found free. Without root it is this machine.
func withFreePorts(t testing.TB) *network.Namespace {
	t.Helper()
	if network.Possible() != nil {
		return nil
	}
	return network.Make(t, "ports", "127.0.0.1")
}

// isolate makes the three namespaces.
func isolate(t testing.TB) isolation {
	t.Helper()
	needNamespaces(t)
	net := isolation{
		vendor: network.Make(t, "vendor", "10.200.1.2"),
		tenant: network.Make(t, "tenant", "10.200.2.2"),
		store:  network.Make(t, "store", storeIP),
	}
	do := func(in *network.Namespace, commands ...string) {
		t.Helper()
		if err := in.Do(commands...); err != nil {
			t.Fatal(err)
		}
	}
	do(net.store, "address add "+storeIP+"/32 dev lo")
	for i, n := range []*network.Namespace{net.vendor, net.tenant} {
		far, gateway := "to-"+[]string{"vendor", "tenant"}[i], fmt.Sprintf("10.200.%d.1", i+1)
		do(n, "link add to-store type veth peer name "+far+" netns "+net.store.Name)
		do(net.store, "address add "+gateway+"/30 dev "+far, "link set "+far+" up")
		do(n, "address add "+n.IP+"/30 dev to-store", "link set to-store up", "route add "+storeIP+"/32 via "+gateway)
	}
	if err := net.store.Sysctl("net/ipv4/ip_forward", "0"); err != nil {
		t.Fatalf("switch forwarding off on the store's machine: %v", err)
	}
	return net
}

// listening are the addresses that sockets inside listen on, in order.
func listening(t testing.TB, n *network.Namespace) (all []string) {
	t.Helper()
	out, err := process.Run(t, n, nil, "", "cat", "/proc/net/tcp", "/proc/net/tcp6")
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

// prove shows that both accounts reach the store and neither reaches the
// other, whose ports are open to itself.
func (net isolation) prove(t testing.TB, storeAddr, vendorAddr, tenantAddr string) {
	t.Helper()
	if forward, err := process.Run(t, net.store, nil, "", "cat", "/proc/sys/net/ipv4/ip_forward"); err != nil || strings.TrimSpace(forward) != "0" {
		t.Errorf("the store's machine passes packets on: ip_forward is %q (%v)", forward, err)
	}
	sides := []struct {
		name, own, other string
		from, to         *network.Namespace
	}{
		{"vendor", vendorAddr, tenantAddr, net.vendor, net.tenant},
		{"tenant", tenantAddr, vendorAddr, net.tenant, net.vendor},
	}
	for _, s := range sides {
		if err := connects(t.Context(), s.from, storeAddr); err != nil {
			t.Errorf("the %s cannot connect to the store: %v", s.name, err)
		}
		if err := ping(s.from, storeIP); err != nil {
			t.Errorf("the %s cannot ping the store: %v", s.name, err)
		}
		if err := connects(t.Context(), s.from, s.own); err != nil {
			t.Errorf("the %s cannot connect to its own server: %v", s.name, err)
		}
		if err := connects(t.Context(), s.from, s.other); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("the %s connects to %s, the other account: %v; want network is unreachable", s.name, s.other, err)
		}
		if err := ping(s.from, s.to.IP); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("the %s pings %s, the other account: %v; want network is unreachable", s.name, s.to.IP, err)
		}
		if route, err := routeTo(t, s.from, s.to.IP); err == nil {
			t.Errorf("the %s has a route to the other account: %s", s.name, route)
		}
	}
}
