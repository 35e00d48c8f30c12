package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a running server process.
type server struct {
	cmd *exec.Cmd
	log string
}

// launch starts a process, with what it prints in a file beside dir.
func launch(dir, name string, env []string, program string, args ...string) (*server, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	s := &server{log: filepath.Join(dir, name+".log")}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.cmd = exec.Command(program, args...)
	s.cmd.Dir = dir
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	return s, s.cmd.Start()
}

// stop ends the process and waits for it.
func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may be gone
	kill := time.AfterFunc(20*time.Second, func() { s.cmd.Process.Kill() })
	defer kill.Stop()
	s.cmd.Wait() //nolint:errcheck // it was asked to end
}

// usage is what a set of processes has used so far.
type usage struct {
	cpu     time.Duration
	peak    int64
	written int64 // to the device, by whoever: nothing else should be writing
}

func usageOf(servers []*server) (usage, error) {
	u := usage{}
	if len(servers) > 0 {
		u.written = deviceWritten(servers[0].log)
	}
	for _, s := range servers {
		proc := fmt.Sprintf("/proc/%d/", s.cmd.Process.Pid)
		stat, err := os.ReadFile(proc + "stat")
		if err != nil {
			return u, err
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		const userTicks, systemTicks, perSecond = 11, 12, 100 // of the fields after the name; CLK_TCK
		for _, i := range []int{userTicks, systemTicks} {
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				return u, err
			}
			u.cpu += time.Duration(n) * time.Second / perSecond
		}
		u.peak += field(proc+"status", "VmHWM:") << 10
	}
	return u, nil
}

// deviceWritten is how many bytes the block device that holds file was sent so
// far. What the kernel counts for a process will not do: where the page cache
// is in large folios, it counts the whole folio for every byte changed in it.
func deviceWritten(file string) int64 {
	var st syscall.Stat_t
	if err := syscall.Stat(file, &st); err != nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", st.Dev>>8&0xfff, st.Dev&0xff))
	if err != nil {
		return 0
	}
	const sectorsWritten, sector = 6, 512
	n, _ := strconv.ParseInt(strings.Fields(string(stat))[sectorsWritten], 10, 64)
	return n * sector
}

// field is the number after a name in a file of /proc; 0 if there is none.
func field(file, name string) int64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return 0
}

// freePort is a TCP port of loopback that nobody holds.
func freePort() int {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // without ports there is nothing to measure
	}
	defer lis.Close()
	return lis.Addr().(*net.TCPAddr).Port
}

// pause waits for d, or until ctx ends, which is an error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// waitFor polls until ok, for a minute at most.
func waitFor(ctx context.Context, what string, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var last error
	for {
		one, stop := context.WithTimeout(ctx, time.Second)
		err := ok(one)
		stop()
		if err == nil {
			return nil
		}
		last = err
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return errors.Join(fmt.Errorf("wait for %s: %w", what, err), last)
		}
	}
}
