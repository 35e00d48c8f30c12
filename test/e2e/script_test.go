package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// TestScripts runs testdata/script: bad input, and what it gets. Beside
// testscript's own commands there are
//
//	refused REGEXP ARGS...  xb ARGS ends with an error, in one sentence that
//	                        matches, and changes neither $WORK nor the store
//	exits CODE REGEXP ARGS...  the same for a certain exit code, and what is
//	                        printed may have several lines
//	serves URL              an xb etcd runs on this journal until the script ends
//	journal URL [N [TOTAL]] puts N keys (5) into the journal, which may be new,
//	                        and finds TOTAL keys (N), all with their values
//	flip FILE TEXT          inverts the byte before TEXT in a file, or the
//	                        middle one if TEXT is empty
//	replace FILE OLD NEW    replaces text in a file
//
// ARGS may begin with "unprivileged", so that permissions bind xb even where
// the tests run as root. FILE may be a pattern; of several, the
// largest file counts. There are
// the variables $STORE (URL of an object store), $JOURNAL (URL of a journal in
// it), $OBJECTS (the folder of its objects), $LOOSE (an object store that breaks
// the promise of conditional PUTs), $BUSY (an address that is taken) and $FREE.
func TestScripts(t *testing.T) {
	store := startStore(t, nil)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Close() })
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			for _, kv := range append(process.PlainEnv(), vendorAccount.Env()...) {
				if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "AWS_") {
					env.Setenv(name, value)
				}
			}
			env.Setenv("STORE", "http://"+store.listen)
			// Each script has a prefix of its own: they run at once.
			name := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
			env.Setenv("JOURNAL", "s3://"+bucket+"/"+name+"?endpoint=http://"+store.listen)
			env.Setenv("OBJECTS", filepath.Join(store.dir, "objects", bucket, name))
			loose := &looseStore{objects: map[string][]byte{}}
			server := httptest.NewServer(loose)
			env.Defer(server.Close)
			env.Setenv("LOOSE", server.URL)
			env.Setenv("BUSY", busy.Addr().String())
			env.Setenv("FREE", "127.0.0.1:"+network.FreePort())
			env.Values[looseKey{}] = loose
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"refused": refused,
			"exits":   exits,
			"serves":  serves,
			"journal": writeJournal,
			"flip":    flip,
			"replace": replace,
		},
	})
}

type looseKey struct{}

// unprivileged is what to put before a command so that permissions bind it,
// even where the tests run as root.
func unprivileged() []string {
	if os.Geteuid() != 0 {
		return nil
	}
	return []string{"setpriv", "--bounding-set=-all", "--inh-caps=-all"}
}

const refusalWithin = 60 * time.Second

// xb runs the binary to its end and returns what it printed on standard error.
func xb(ts *testscript.TestScript, args []string) (code int, stdout, stderr string) {
	ctx, cancel := context.WithTimeout(context.Background(), refusalWithin)
	defer cancel()
	argv := append([]string{xbBinary}, args...)
	if args[0] == "unprivileged" {
		argv = append(unprivileged(), append([]string{xbBinary}, args[1:]...)...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = append(process.PlainEnv(), "HOME="+ts.Getenv("WORK"))
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if ctx.Err() != nil {
		ts.Fatalf("xb %s: did not end within %v; it printed:\n%s%s", strings.Join(args, " "), refusalWithin, out.String(), errOut.String())
	}
	if cmd.ProcessState == nil {
		ts.Fatalf("start xb: %v", err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// refused holds a refusal against all that is promised of one.
func refused(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refused REGEXP ARGS...")
	}
	before := trees(ts)
	code, _, stderr := xb(ts, args[1:])
	command := "xb " + strings.Join(args[1:], " ")
	ts.Logf("%s: exit code %d\n%s", command, code, stderr)
	if code <= 0 {
		ts.Fatalf("%s ends with %d; want an error", command, code)
	}
	said := ""
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "time=") { // the log
			said += line
		}
	}
	if strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "xb: ") {
		ts.Fatalf("%s says:\n%s\nwant one line that begins with xb:", command, said)
	}
	if !regexp.MustCompile(args[0]).MatchString(said) {
		ts.Fatalf("%s says:\n%s\nwant a match of %s", command, said, args[0])
	}
	if diff := cmp.Diff(before, trees(ts)); diff != "" {
		ts.Fatalf("%s changed what was there (-before +after):\n%s", command, diff)
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: exits CODE REGEXP ARGS...")
	}
	before := trees(ts)
	code, stdout, stderr := xb(ts, args[2:])
	command := "xb " + strings.Join(args[2:], " ")
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s ends with %d; want %s:\n%s%s", command, code, args[0], stdout, stderr)
	}
	if !regexp.MustCompile(args[1]).MatchString(stdout + stderr) {
		ts.Fatalf("%s says:\n%s%s\nwant a match of %s", command, stdout, stderr, args[1])
	}
	if diff := cmp.Diff(before, trees(ts)); diff != "" {
		ts.Fatalf("%s changed what was there (-before +after):\n%s", command, diff)
	}
}

// trees is every file's name, mode and digest, in the script's folder and in
// the journal's.
func trees(ts *testscript.TestScript) map[string]string {
	all := map[string]string{"loose store": fmt.Sprint(ts.Value(looseKey{}).(*looseStore).names())}
	for _, root := range []string{ts.Getenv("WORK"), ts.Getenv("OBJECTS")} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil && path == root {
				all[path] = "absent"
				return nil
			}
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			all[path] = info.Mode().String()
			if info.Mode().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				all[path] += fmt.Sprintf(" %x", sha256.Sum256(data))
			}
			return nil
		})
		ts.Check(err)
	}
	return all
}

// serves runs xb etcd on a journal until the script ends.
func serves(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serves URL")
	}
	ctx, stop := context.WithCancel(context.Background())
	e := startEtcd(ctx, ts, args[0])
	ts.Defer(func() { stop(); <-e.gone })
}

// An etcd is an xb etcd that serves.
type etcd struct {
	socket string
	gone   chan struct{} // closed when it has ended
}

// startEtcd runs xb etcd until ctx ends and returns once it serves.
func startEtcd(ctx context.Context, ts *testscript.TestScript, url string) etcd {
	e := etcd{
		socket: filepath.Join(os.TempDir(), fmt.Sprintf("xbe2e-%d-%d.sock", os.Getpid(), named.Add(1))),
		gone:   make(chan struct{}),
	}
	cmd := exec.CommandContext(ctx, xbBinary, "etcd", "--journal", url, "--listen", "unix://"+e.socket)
	cmd.Env = append(process.PlainEnv(), vendorAccount.Env()...)
	var printed strings.Builder
	cmd.Stderr = &printed
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	if _, err := out.Read(make([]byte, 1)); err != nil { // it speaks once it serves
		_ = cmd.Wait()
		ts.Fatalf("xb etcd on %s: %v\n%s", url, err, printed.String())
	}
	go func() {
		defer close(e.gone)
		_ = cmd.Wait() // it was told to end
		_ = os.Remove(e.socket)
	}()
	return e
}

// writeJournal makes a journal, if there is none, and writes to it.
func writeJournal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 3 {
		ts.Fatalf("usage: journal URL [N [TOTAL]]")
	}
	n := 5
	if len(args) > 1 {
		n = number(ts, args[1])
	}
	total := n
	if len(args) > 2 {
		total = number(ts, args[2])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	e := startEtcd(serving, ts, args[0])
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + e.socket}, DialTimeout: 10 * time.Second})
	ts.Check(err)
	defer client.Close()
	for i := range n {
		_, err := client.Put(ctx, fmt.Sprintf("key-%d", i), fmt.Sprintf("value-%d", i))
		ts.Check(err)
	}
	all, err := client.Get(ctx, "key-", clientv3.WithPrefix())
	ts.Check(err)
	if len(all.Kvs) != total {
		ts.Fatalf("%s has %d keys; want %d", args[0], len(all.Kvs), total)
	}
	for _, kv := range all.Kvs {
		if want := "value-" + strings.TrimPrefix(string(kv.Key), "key-"); string(kv.Value) != want {
			ts.Fatalf("%s has %s=%s; want %s", args[0], kv.Key, kv.Value, want)
		}
	}
	stop()
	<-e.gone
}

func number(ts *testscript.TestScript, arg string) int {
	n, err := strconv.Atoi(arg)
	ts.Check(err)
	return n
}

func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip FILE TEXT")
	}
	path := one(ts, args[0])
	data, err := os.ReadFile(path)
	ts.Check(err)
	at := bytes.Index(data, []byte(args[1])) - 1
	if args[1] == "" {
		at = len(data) / 2
	}
	if at < 0 {
		ts.Fatalf("%s does not hold %q", path, args[1])
	}
	data[at] ^= 0xff
	ts.Check(os.WriteFile(path, data, 0o600))
}

func replace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace FILE OLD NEW")
	}
	path := one(ts, args[0])
	data, err := os.ReadFile(path)
	ts.Check(err)
	if !strings.Contains(string(data), args[1]) {
		ts.Fatalf("%s does not hold %q: %s", path, args[1], data)
	}
	ts.Check(os.WriteFile(path, []byte(strings.ReplaceAll(string(data), args[1], args[2])), 0o600))
}

// one is the largest file that a pattern matches.
func one(ts *testscript.TestScript, pattern string) (path string) {
	found, err := filepath.Glob(ts.MkAbs(pattern))
	ts.Check(err)
	size := int64(-1)
	for _, file := range found {
		info, err := os.Stat(file)
		ts.Check(err)
		if info.Size() > size {
			path, size = file, info.Size()
		}
	}
	if path == "" {
		ts.Fatalf("%s matches no file", pattern)
	}
	return path
}
