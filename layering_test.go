// Package xbernetes holds no code: only the test that keeps the rooms of the
// house apart.
package xbernetes

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/xbernetes/xbernetes/"

// rule says what the packages under a path may import, of this module and of others.
type rule struct {
	packages string // import path prefix below the module
	reason   string
	own      []string // of this module, beside packages below itself; prefixes
	foreign  []string // of others, beside the standard library; prefixes; nil: any that no ban names
}

// rules are looked up by the longest prefix; every package needs one.
var rules = []rule{
	{"cmd/xb", "the only place that names drivers and wires parts", []string{"internal/", "api/"}, nil},
	{"api", "what others import: plain types", nil, []string{"k8s.io/apimachinery"}},
	{"api/aggregation/direct", "a client's way past the gateway", nil, []string{"k8s.io/apimachinery", "k8s.io/client-go"}},
	{"api/aggregation/reserve", "a client of the gateway's reservations", []string{"api/aggregation/v1alpha1"}, []string{"k8s.io/apimachinery", "k8s.io/client-go"}},
	{"api/servicesync", "plain types that hold plain types of Kubernetes", nil, []string{"k8s.io/api", "k8s.io/apimachinery"}},
	{"internal/journal", "the contract: anybody can implement it", nil, []string{}},
	{"internal/journal/journaltest", "what every driver's test runs", []string{"internal/journal"}, []string{"github.com/google/go-cmp", "go.uber.org/goleak", "golang.org/x/sync"}},
	{"internal/journal/faultlog", "wraps any journal", []string{"internal/journal"}, []string{}},
	{"internal/journal/memlog", "a driver knows the contract and its service", []string{"internal/journal"}, []string{}},
	{"internal/journal/filelog", "a driver knows the contract and its service", []string{"internal/journal"}, []string{"golang.org/x/sys", "github.com/klauspost/compress"}},
	{"internal/journal/s3log", "a driver knows the contract and its service", []string{"internal/journal"}, []string{"github.com/aws/", "golang.org/x/sync"}},
	{"internal/notify", "hints decide nothing and know no journal", nil, []string{}},
	{"internal/mvcc", "the state is a pure function of the journal", []string{"internal/journal"}, []string{}},
	{"internal/record", "the envelope between a journal and the state", []string{"internal/journal", "internal/mvcc"}, []string{"github.com/klauspost/compress"}},
	{"internal/replica", "knows the journal's contract, no driver, and no API", []string{"internal/journal", "internal/notify", "internal/mvcc", "internal/record"}, []string{"github.com/klauspost/compress", "golang.org/x/sync"}},
	{"internal/fsck", "reads what replicas wrote", []string{"internal/journal", "internal/mvcc", "internal/record", "internal/replica"}, []string{}},
	{"internal/etcdapi", "the etcd API over a replica, nothing else", []string{"internal/replica", "internal/mvcc", "internal/journal"}, []string{"go.etcd.io/etcd/api/v3", "google.golang.org/"}},
	{"internal/pki", "certificates on disk, for whoever serves", nil, []string{}},
	{"internal/controlplane", "knows an etcd endpoint and nothing below it", []string{"internal/pki"}, nil},
	{"internal/gateway", "speaks the Kubernetes API, and knows no part of ours but its own types", []string{"api/aggregation/", "internal/pki"}, nil},
	{"internal/gateway/conformance", "checks any API server, and knows no gateway", nil, []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"}},
	{"internal/servicesync", "speaks the Kubernetes API of ordinary clusters, and knows nothing below it", []string{"api/servicesync/v1alpha1"}, nil},
	{"internal/servicesync/model", "decides, and does nothing", []string{"api/servicesync/v1alpha1"}, []string{"k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/mcs-api"}},
	{"internal/servicesync/queue", "orders keys, whatever they are", nil, []string{"k8s.io/client-go/util/workqueue"}},
	{"internal/servicesync/peers", "finds clusters and reads none of them", nil, nil},
	{"internal/devstore", "the object store of xb dev; knows no journal", nil, nil},
}

// bans are what only the packages named may import, wherever rules leave it open.
var bans = []struct {
	foreign string
	allowed []string
	reason  string
}{
	{"k8s.io/kubernetes", []string{"internal/controlplane"}, "it takes minutes to build and has global state"},
	{"github.com/aws/aws-sdk-go-v2", []string{"internal/journal/s3log", "internal/devstore"}, "cloud SDKs belong to drivers and notifiers"},
	{"github.com/versity/versitygw", []string{"internal/devstore"}, "the object store is for xb dev only"},
	{"go.etcd.io/etcd/server/v3", nil, "etcd's server is for tests only"},
}

func TestLayering(t *testing.T) {
	pkgs := list(t)
	if len(pkgs) < 8 {
		t.Fatalf("go list found %d packages only", len(pkgs))
	}
	for _, p := range pkgs {
		r := ruleFor(p.ImportPath)
		if r == nil {
			t.Errorf("%s has no rule: say here what it may import, and why", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			check(t, p.ImportPath, imp, r)
		}
	}
}

func check(t *testing.T, pkg, imp string, r *rule) {
	if own, ok := strings.CutPrefix(imp, module); ok {
		if !below(own, r.packages) && !anyExact(own, r.own) {
			t.Errorf("%s imports %s: %s", pkg, imp, r.reason)
		}
		return
	}
	if !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
		return // standard library
	}
	if r.foreign != nil && !anyBelow(imp, r.foreign) {
		t.Errorf("%s imports %s: %s", pkg, imp, r.reason)
	}
	for _, b := range bans {
		if below(imp, b.foreign) && !anyBelow(strings.TrimPrefix(pkg, module), b.allowed) {
			t.Errorf("%s imports %s: %s", pkg, imp, b.reason)
		}
	}
}

// below says whether path is prefix or under it; a prefix that ends in / or
// covers a host's modules counts as it stands.
func below(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, strings.TrimSuffix(prefix, "/")+"/")
}

func anyBelow(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if below(path, p) {
			return true
		}
	}
	return false
}

// anyExact is anyBelow where a prefix without a final / means that one package.
func anyExact(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}

func ruleFor(pkg string) *rule {
	var best *rule
	for i := range rules {
		if below(strings.TrimPrefix(pkg, module), rules[i].packages) && (best == nil || len(rules[i].packages) > len(best.packages)) {
			best = &rules[i]
		}
	}
	return best
}

type listed struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T) []listed {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./api/...", "./cmd/...", "./internal/...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var pkgs []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}
