package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain runs the tests, or, in a process that a test started, what the test asks
// for: to fail, or to be ready and wait for the end of standard input.
func TestMain(m *testing.M) {
	switch os.Args[min(1, len(os.Args)-1)] {
	case "fail":
		fmt.Println("no such luck")
		os.Exit(3)
	case "serve":
		if err := os.WriteFile(os.Args[2], []byte("ready\n"), 0o600); err != nil {
			panic(err)
		}
		<-StopWithParent(context.Background()).Done()
		return
	}
	os.Exit(m.Run())
}

func testProcess(t *testing.T, args ...string) *process {
	dir := t.TempDir()
	p := &process{name: "part", log: filepath.Join(dir, "log"), ready: filepath.Join(dir, "ready"), down: filepath.Join(dir, "down")}
	p.args = append(args, p.ready)
	return p
}

func TestProcessThatNeverStarts(t *testing.T) {
	p := testProcess(t, "fail")
	err := p.keep(t.Context(), oneByOne(io.Discard), "again")
	if !errors.Is(err, errEarly) || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("keep returns %v", err)
	}
}

// TestProcessIsStartedAgain: a process that is killed is down until somebody asks for
// a start, and ends when keep does.
func TestProcessIsStartedAgain(t *testing.T) {
	p := testProcess(t, "serve")
	var mu sync.Mutex
	var said strings.Builder
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&said, format, args...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	kept := make(chan error, 1)
	keeping, stop := context.WithCancel(ctx)
	go func() { kept <- p.keep(keeping, say, "type this") }()
	if err := until(ctx, func() bool { return written(p.ready) }); err != nil {
		t.Fatal(err)
	}
	if err := p.start(ctx); err == nil || !strings.Contains(err.Error(), "is not down") {
		t.Errorf("a start while it runs: %v", err)
	}
	if err := syscall.Kill(int(p.pid.Load()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := until(ctx, func() bool { return written(p.down) }); err != nil {
		t.Fatal(err)
	}
	if err := p.start(ctx); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-kept; err != nil {
		t.Errorf("keep ends with %v", err)
	}
	if got := said.String(); !strings.Contains(got, "part ended (signal: killed)") || !strings.Contains(got, "type this") || !strings.Contains(got, "part is started again") {
		t.Errorf("it said %q", got)
	}
	if written(p.ready) || written(p.down) {
		t.Error("its files are still there")
	}
}

// TestAccountsStay: a second start finds the accounts of the first, and makes those
// that are missing.
func TestAccountsStay(t *testing.T) {
	dir := t.TempDir()
	first, err := openAccounts(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	second, err := openAccounts(dir, 4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second[:2]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"store", "vendor", "tenant", "tenant-2", "tenant-3"}, Names(dir)); diff != "" {
		t.Error(diff)
	}
	fewer, err := openAccounts(dir, 1)
	if err != nil || len(fewer) != 1 || len(Names(dir)) != 5 {
		t.Errorf("%v, %v, and %v", fewer, err, Names(dir))
	}
}

// TestPorts: a port that is taken gives way to a free one, unless it was asked for.
func TestPorts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := Config{Accounts: 1, Port: taken.Addr().(*net.TCPAddr).Port}
	if addrs, err := cfg.addresses(); err != nil || len(addrs) != 2 || addrs[0] == taken.Addr().String() {
		t.Errorf("%v, %v", addrs, err)
	}
	cfg.FixedPorts = true
	if _, err := cfg.addresses(); err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("a port that was asked for is taken: %v", err)
	}
}

// TestShellQuote: a shell reads back every word as it was.
func TestShellQuote(t *testing.T) {
	for _, word := range []string{"plain", "", "a folder", "it's", "$HOME", "a;b", `back\slash`, "~"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+shellQuote(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q is read as %q, %v", word, out, err)
		}
	}
}
