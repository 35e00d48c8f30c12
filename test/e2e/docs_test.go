package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/program"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// A page is a page of the docs, and what becomes of each block of shell in it.
type page struct {
	given  string // shell that makes what the page takes to be there
	blocks []block
}

// A block is one fenced block. Exactly one of runs, serves and skipped is set.
type block struct {
	starts  string // how its text starts
	runs    bool   // it ends by itself; output that the page shows right below it must be what it prints
	serves  string // it goes on; a pattern of what it prints once it serves
	skipped string // why it is not run here
	after   string // shell that makes what the text before it says
	stops   string // command line of what gets Ctrl-C first, in the terminal of the block that serves
}

// pages are all pages with shell in them.
var pages = map[string]page{
	"README.md": {blocks: []block{
		{starts: "make run", skipped: "builds the binary that this test is given, and starts it as TestDev does"},
		{starts: "make test", skipped: "is what runs this test"},
		{starts: `export PATH="$PWD/bin:$PATH"`, serves: "In another terminal"},
		{starts: "export KUBECONFIG=", runs: true},
		{starts: "xb server --journal 's3:", skipped: "needs a bucket and credentials of AWS"},
		{starts: "xb etcd", serves: "Serving the etcd API"},
		{starts: "xb fsck", runs: true},
		{starts: "xb gateway --servers servers.yaml", skipped: "is a summary of docs/gateway.md, whose blocks are run"},
		{starts: "xb gateway validate", runs: true},
		{starts: "xb servicesync", skipped: "needs clusters with pods: test/servicesync has some"},
		{starts: "export XB_REGIONS", skipped: "is a summary of docs/regions.md, whose blocks are run"},
	}},
	"docs/regions.md": {given: `export PATH=$PWD/bin:$PATH
		cp -r "$REPOSITORY/deploy" .`, blocks: []block{
		{starts: "xb server --data-dir eu", runs: true},
		{starts: "cat >regions.yaml", runs: true},
		{starts: "xb servicecluster create", runs: true},
		{starts: "xb assignment delete", runs: true},
		{starts: "export KUBECONFIG=$PWD/eu", runs: true},
		{starts: "xb account create initech", runs: true},
		{starts: "kubectl --kubeconfig us/kubeconfig apply", runs: true},
		{starts: "kubectl apply -f - <<END", runs: true},
		{starts: "xb region serve", serves: "Serving at"},
		{starts: "$ kubectl get serviceclusters", skipped: "needs the token of a user that all regions take: the tests of internal/region/facade have one"},
	}},
	"docs/server.md": {given: "export PATH=$PWD/bin:$PATH", blocks: []block{
		{starts: "xb server", serves: "In another terminal"},
		{starts: "export KUBECONFIG=", runs: true},
		{starts: "# in the vendor's account", skipped: "needs a bucket and two AWS accounts: TestTwoAccounts has both in network namespaces"},
		{starts: "xb server --journal 'postgres:", skipped: "needs a database: the tests of internal/journal/sqllog have one"},
		{starts: "NATS_PASSWORD_FILE=", skipped: "needs NATS servers: the tests of internal/journal/natslog have some"},
		{starts: "xb etcd", serves: "Serving the etcd API"},
		{starts: "kubectl get --raw", runs: true},
		{starts: "xb status", runs: true},
		{starts: "xb fsck", runs: true},
		{starts: "xb journal dump", runs: true},
	}},
	"docs/aws.md": {given: "export PATH=$PWD/bin:$PATH", blocks: []block{
		{starts: "aws --profile owner", skipped: aws},
		{starts: "xb server --journal", skipped: aws},
		{starts: "xb server --journal", skipped: aws},
		{starts: "xb aws policy", runs: true},
	}},
	"docs/gateway.md": {given: "export PATH=$PWD/bin:$PATH", blocks: []block{
		{starts: "xb server --data-dir one", serves: "Serving at"},
		{starts: "export KUBECONFIG=~/", runs: true},
		{starts: "export KUBECONFIG=$PWD/one", serves: "Serving at", stops: "xb gateway"},
		{starts: "kubectl --kubeconfig one/kubeconfig get", runs: true},
		{starts: "sample-apiserver", skipped: "needs a sample-apiserver and a kube-apiserver: test/gateway has both"},
	}},
	"docs/policies.md": {
		given: `export PATH=$PWD/bin:$PATH
			xb server --data-dir core --listen 127.0.0.1:6441 > core.log 2>&1 &
			until [ -f core/kubeconfig ]; do sleep 0.1; done
			cp core/kubeconfig core.kubeconfig
			export KUBECONFIG=$PWD/core.kubeconfig
			cat > servers.yaml <<END
apiVersion: aggregation.xbernetes.io/v1alpha1
kind: RemoteAPIServer
metadata: {name: gadgets}
spec: {url: https://gadgets.example.com, groups: [example.com], guard: {namespaces: true, authorization: true, quota: true}}
END`,
		blocks: []block{
			{starts: "xb gateway --servers", serves: "Serving at"},
			{starts: "kubectl get namespace team-a", runs: true, after: `kubectl create namespace team-a
				kubectl get namespace team-a -o json | jq '.spec.finalizers += ["aggregation.xbernetes.io/gadgets"]' |
				kubectl replace --raw /api/v1/namespaces/team-a/finalize -f -
				kubectl delete namespace team-a --wait=false`},
			{starts: "sample-apiserver", skipped: "needs a sample-apiserver: test/gateway has one"},
			{starts: "kube-apiserver", skipped: "needs a kube-apiserver: test/gateway has one"},
		},
	},
	"docs/transactions.md": {
		given: `export PATH=$PWD/bin:$PATH
			xb server --data-dir one --listen 127.0.0.1:6441 > one.log 2>&1 &
			until [ -f one/kubeconfig ]; do sleep 0.1; done
			export KUBECONFIG=$PWD/one/kubeconfig`,
		blocks: []block{
			{starts: "cat > order.yaml", runs: true},
			{starts: "xb transaction -f", runs: true}, // the key makes it safe
			{starts: "mkdir app", runs: true},
			{starts: "kubectl create clusterrole transactions", runs: true},
		},
	},
	"docs/servicesync.md": {
		given: `export PATH=$PWD/bin:$PATH
			cp -r "$REPOSITORY/deploy" .
			port=6441
			for name in east west store; do
				xb server --data-dir $name --listen 127.0.0.1:$port --context $name > $name.log 2>&1 &
				port=$((port+1))
			done
			for name in east west store; do until [ -f $name/kubeconfig ]; do sleep 0.1; done; done
			KUBECONFIG=east/kubeconfig:west/kubeconfig:store/kubeconfig kubectl config view --flatten > all
			export KUBECONFIG=$PWD/all`,
		blocks: []block{
			{starts: "kubectl --context east apply -f deploy/", runs: true},
			{starts: "sh deploy/servicesync/peer-kubeconfig.sh west", runs: true},
			{starts: "kubectl --context east -n xb-servicesync create secret generic peer-west", runs: true},
			{starts: "kubectl --context east config view", runs: true},
			{starts: "$ xb servicesync status", skipped: clusters},
			{starts: "xb servicesync --cluster east --kube", skipped: clusters},
			{starts: "kubectl --context west -n xb-servicesync create token", runs: true},
			{starts: "xb servicesync --cluster east=", skipped: clusters},
			{starts: "kubectl --context store apply", runs: true},
			{starts: "xb servicesync --cluster east --kube", skipped: clusters},
			{starts: "xb servicesync --cluster east=", skipped: clusters},
			{starts: "kubectl --context west -n shop annotate", skipped: clusters},
			{starts: "xb servicesync migrate", skipped: clusters},
			{starts: "kubectl --context east -n xb-servicesync create secret generic xb-servicesync-metrics", runs: true},
		},
	},
}

const aws = "needs two accounts of AWS"

const clusters = "needs two clusters with Services, nodes and pods: test/servicesync has some"

// snippet is a fenced block of a page.
type snippet struct {
	line   int // where it begins
	text   string
	output string // the block without a language that follows, if nothing is between
}

var (
	fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	// shellWords begin a block of shell that does not say that it is one.
	shellWords = regexp.MustCompile(`^(\$ |(bin/)?xb |kubectl |make |export |sh |sed |cat |curl |\w+=\$\()`)
)

// snippets are the blocks of shell of a page, in order.
func snippets(text string) (all []snippet) {
	shellEnds := -1
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		language, body := text[at[2]:at[3]], text[at[4]:at[5]]
		switch {
		case language == "sh" || language == "bash" || language == "shell" || language == "console" || language == "" && shellWords.MatchString(body):
			all = append(all, snippet{line: 1 + strings.Count(text[:at[0]], "\n"), text: body})
			shellEnds = at[1]
		case language == "" && shellEnds >= 0 && strings.TrimSpace(text[shellEnds:at[0]]) == "":
			all[len(all)-1].output = body
		}
	}
	return all
}

// TestDocs runs every block of shell of README.md and docs/, as it is written
// and in order, a page in a network namespace and a folder of its own. A block
// that is not run is named above, with the reason.
func TestDocs(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(program.Repository(), "docs", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, filepath.Join(program.Repository(), "README.md")) {
		name, err := filepath.Rel(program.Repository(), file)
		if err != nil {
			t.Fatal(err)
		}
		if name == "docs/reference.md" {
			continue // made from the commands' help, which a test of cmd/xb holds it to
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := snippets(string(text)); len(found) > 0 || len(pages[name].blocks) > 0 {
			t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) { pages[name].try(t, name, found) })
		}
	}
}

func (p page) try(t *testing.T, name string, found []snippet) {
	for i, s := range found {
		if i >= len(p.blocks) || !strings.HasPrefix(s.text, p.blocks[i].starts) {
			t.Fatalf("%s:%d: this block is neither run nor named with a reason why not; add it to pages:\n%s", name, s.line, s.text)
		}
	}
	if len(found) < len(p.blocks) {
		t.Fatalf("%s has no block any more that starts with %q", name, p.blocks[len(found)].starts)
	}
	var user *reader
	for i, b := range p.blocks {
		where := fmt.Sprintf("%s:%d", name, found[i].line)
		if b.skipped != "" {
			t.Logf("%s: not run, because it %s", where, b.skipped)
			continue
		}
		if user == nil {
			user = newReader(t)
			user.follow(t, name, p.given)
		}
		if b.stops != "" {
			user.interrupt(t, b.stops)
		}
		user.follow(t, where, b.after)
		if b.serves != "" {
			user.serve(t, where, found[i].text, regexp.MustCompile(b.serves))
			continue
		}
		user.try(t, where, found[i])
	}
}

// A reader does what a page says, in a network namespace and a folder of its
// own, and in one terminal after the other: what one exports, the next has.
type reader struct {
	in      *network.Namespace
	dir     string
	env     []string
	serving *process.Process
}

func newReader(t *testing.T) *reader {
	t.Helper()
	needNamespaces(t)
	r := &reader{in: network.Make(t, "docs", "127.0.0.1"), dir: t.TempDir()}
	r.env = []string{"HOME=" + filepath.Join(r.dir, "home"), "XDG_DATA_HOME=", "REPOSITORY=" + program.Repository(), kubectlInPath(t)}
	t.Cleanup(func() { // before the namespace is deleted; t.Context() has ended by now
		pids, err := exec.Command("ip", "netns", "pids", r.in.Name).Output()
		if err != nil {
			t.Errorf("processes that the page started may go on: ip netns pids: %v", err)
		}
		for _, pid := range strings.Fields(string(pids)) {
			if n, err := strconv.Atoi(pid); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
	})
	for _, dir := range []string{"home", "bin"} {
		if err := os.Mkdir(filepath.Join(r.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(xbBinary, filepath.Join(r.dir, "bin", "xb")); err != nil {
		t.Fatal(err)
	}
	return r
}

// typed starts a shell with what is typed into it.
func (r *reader) typed(t *testing.T, text string) *process.Process {
	t.Helper()
	script := "cd '" + r.dir + "'\n[ ! -f .env ] || . ./.env\nset -e\n" + text + "\nexport -p > .env\n"
	p := process.Spawn(t, r.in, "docs", r.env, "sh", "-c", script)
	p.ExpectEnd()
	return p
}

// run types text and returns what is printed, once all of it has ended.
func (r *reader) run(t *testing.T, text string) (string, error) {
	t.Helper()
	p := r.typed(t, text)
	select {
	case <-p.Ended():
		return p.Printed(1000), p.Err()
	case <-time.After(2 * startsWithin):
		return p.Printed(1000), errors.New("it does not end")
	}
}

// follow does what a page takes for done.
func (r *reader) follow(t *testing.T, where, text string) {
	t.Helper()
	if out, err := r.run(t, text); err != nil {
		t.Fatalf("%s: %s\n%v:\n%s", where, text, err, out)
	}
}

// try runs a block. One with output is tried until that is what it prints: it
// shows what is there after a while.
func (r *reader) try(t *testing.T, where string, s snippet) {
	t.Helper()
	if s.output == "" {
		r.follow(t, where, s.text)
		return
	}
	want := likely(s.output)
	wait.Poll(t, 60*time.Second, where+" prints what the page shows", func(context.Context) error {
		out, err := r.run(t, s.text)
		if err == nil && !want.MatchString(out) {
			err = errors.New("it does not")
		}
		if err != nil {
			return fmt.Errorf("%w:\n%s\nwant\n%s", err, out, s.output)
		}
		return nil
	})
}

func (r *reader) serve(t *testing.T, where, text string, ready *regexp.Regexp) {
	t.Helper()
	p := r.typed(t, text)
	r.serving = p
	wait.Poll(t, 2*startsWithin, where+" serves", func(context.Context) error {
		if !ready.MatchString(p.Printed(1000)) {
			return errors.Join(fmt.Errorf("it prints %q", p.Printed(20)), p.Alive())
		}
		return nil
	})
	// What it exported is for the terminals that are opened next, as the pages
	// say it again where it is needed; PATH is of the user's own profile.
	if line := regexp.MustCompile(`(?m)^export PATH=.*$`).FindString(text); line != "" {
		r.follow(t, where, line)
	}
}

// interrupt is Ctrl-C in the terminal of what serves: for the command in the
// foreground, and none that it left in the background.
func (r *reader) interrupt(t *testing.T, what string) {
	t.Helper()
	if err := syscall.Kill(childOf(t, r.serving, what), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.serving.Ended():
	case <-time.After(30 * time.Second):
		t.Fatal("Ctrl-C does not end it")
	}
}

var varies = regexp.MustCompile(`\d+(?:\\?\.\d+)?(?:ns|µs|ms|s|m|h|d)\b`)

// likely is a pattern for output like this: columns may be wider, and times others.
func likely(output string) *regexp.Regexp {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(output)) {
		words := strings.Fields(line)
		for i, word := range words {
			words[i] = varies.ReplaceAllString(regexp.QuoteMeta(word), `[0-9.]+[a-zµ]+[0-9a-z]*`)
		}
		lines = append(lines, strings.Join(words, `\s+`))
	}
	return regexp.MustCompile(`^\s*` + strings.Join(lines, `\s*\n\s*`) + `\s*$`)
}

func TestSnippets(t *testing.T) {
	got := snippets("a\n```sh\nls\n```\n\n```\nfile 1.5ms\n```\n```go\nx\n```\nb\n```\n$ xb version\n```\n\n```\npicture\n```\n")
	if len(got) != 2 || got[0].text != "ls\n" || got[0].output != "file 1.5ms\n" || got[1].text != "$ xb version\n" || got[1].line != 13 {
		t.Errorf("%+v", got)
	}
	if !likely(got[0].output).MatchString("file   12ms\n") || likely(got[0].output).MatchString("other 12ms") {
		t.Error("output is compared wrongly")
	}
}
