package awspolicy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/xbernetes/xbernetes/internal/awspolicy"
	"github.com/xbernetes/xbernetes/internal/fsck"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/s3log"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3test"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

var where = awspolicy.Journal{Partition: "aws", Bucket: "shared", Prefix: "prod"}

// guard stands before a store, and lets a party do what its policies allow.
type guard struct {
	store    http.Handler
	policies []awspolicy.Document

	mu      sync.Mutex
	allowed map[string]request // the last of each shape
	denied  map[string]request
}

func newGuard(store http.Handler, policies ...awspolicy.Document) *guard {
	return &guard{store: store, policies: policies, allowed: map[string]request{}, denied: map[string]request{}}
}

// judge says whether r is allowed, and notes it.
func (g *guard) judge(r request) bool {
	allowed := verdict(r, g.policies...)
	g.mu.Lock()
	defer g.mu.Unlock()
	if allowed {
		g.allowed[r.shape()] = r
	} else {
		g.denied[r.shape()] = r
	}
	return allowed
}

// asked returns what was allowed and denied so far. The servers may still run.
func (g *guard) asked() (allowed, denied []request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.allowed)), slices.Collect(maps.Values(g.denied))
}

// saw says whether a request of that action was allowed on an object below folder.
func (g *guard) saw(action, folder string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.allowed {
		if r.Action == action && strings.Contains(r.Resource, "/"+folder) {
			return true
		}
	}
	return false
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked := ofHTTP(r)
	if !g.judge(asked) {
		deny(w)
		return
	}
	answer := httptest.NewRecorder()
	g.store.ServeHTTP(answer, r)
	if asked.Action == "s3:GetObject" && answer.Code == http.StatusNotFound {
		// S3 says that an object is not there only to those who may list it.
		bucket, key, _ := strings.Cut(strings.TrimPrefix(asked.Resource, "arn:aws:s3:::"), "/")
		if !g.judge(request{Action: "s3:ListBucket", Resource: "arn:aws:s3:::" + bucket, Context: map[string]string{"s3:prefix": key}}) {
			deny(w)
			return
		}
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes()) // a client that is gone
}

func deny(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusForbidden)
	fmt.Fprint(w, `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`)
}

// config says how to reach the journal behind g.
func (g *guard) config(t *testing.T, readOnly bool) s3log.Config {
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return s3log.Config{
		Bucket: where.Bucket, Prefix: where.Prefix, Endpoint: server.URL, PathStyle: true, ReadOnly: readOnly,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	}
}

// refused opens a journal that is not there.
func refused(t *testing.T, g *guard, readOnly bool, want string) {
	t.Helper()
	if _, err := s3log.Open(t.Context(), g.config(t, readOnly)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("open a journal that nobody has created = %v, want it to say %q", err, want)
	}
}

// open opens the journal behind g.
func (g *guard) open(t *testing.T, readOnly bool) journal.Store {
	t.Helper()
	store, err := s3log.Open(t.Context(), g.config(t, readOnly))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// serve runs a server on the journal behind g, until the test ends.
func (g *guard) serve(t *testing.T, owner bool) *replica.Replica {
	t.Helper()
	cfg := replica.Config{
		Store:    g.open(t, false),
		Notifier: notify.NewPolling(2*time.Millisecond, 20*time.Millisecond),
		Logger:   slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Trim:     owner,
	}
	cfg.Snapshots.EveryBytes = 8 << 10
	r := replica.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("server ended: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); run.Wait() })
	<-r.Ready()
	return r
}

func write(t *testing.T, r *replica.Replica, n int) {
	t.Helper()
	value := []byte(strings.Repeat("x", 400))
	req := &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: fmt.Sprint("k", n%20)}, Value: value}}}
	if _, err := r.Propose(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// parties live on one journal: an owner creates it, an owner and a writer serve from it
// and take snapshots, the owner trims, and a reader checks it.
func parties(t *testing.T) (owner, writer, reader *guard) {
	store, clock, err := s3test.New(where.Bucket, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := awspolicy.Bucket(where)
	is := func(role awspolicy.Role) *guard {
		return newGuard(store, awspolicy.Identity(where, role, awspolicy.Notifications{}), all)
	}
	owner, writer, reader = is(awspolicy.Owner), is(awspolicy.Writer), is(awspolicy.Reader)
	refused(t, reader, true, "there is no journal at s3://shared/prod")
	refused(t, writer, false, "denied")
	o, w := owner.serve(t, true), writer.serve(t, false)
	done := func() bool {
		for _, folder := range []string{"journal/", "floor/", "blobs/"} {
			if !owner.saw("s3:DeleteObject", "prod/"+folder) {
				return false
			}
		}
		return writer.saw("s3:PutObject", "prod/blobs/")
	}
	for n := 0; !done(); n++ {
		if n == 20_000 {
			t.Fatalf("after %d writes the owner has not deleted all that it gave up", n)
		}
		write(t, []*replica.Replica{o, w}[n/10%2], n)
		if n%200 == 199 {
			clock.Advance(21 * time.Minute)
		}
	}
	writer.serve(t, false) // starts from a snapshot, and finds the mark of the probe
	read := reader.open(t, true)
	if report, err := fsck.Check(t.Context(), read, fsck.Options{}); err != nil || report.ExitCode() != 0 {
		t.Errorf("fsck = %+v, %v", report, err)
	}
	if err := fsck.Dump(t.Context(), read, io.Discard, fsck.DumpOptions{}); err != nil && !errors.Is(err, journal.ErrTrimmed) {
		t.Error(err)
	}
	return owner, writer, reader
}

// settings are the actions by which a server looks at the bucket's settings, where it may.
var settings = []string{"s3:GetBucketObjectLockConfiguration", "s3:GetBucketVersioning", "s3:GetLifecycleConfiguration"}

// TestPoliciesAreWhatServersNeed: servers and tools work under the printed policies, and
// each line of these is used.
func TestPoliciesAreWhatServersNeed(t *testing.T) {
	owner, writer, reader := parties(t)
	for role, g := range map[awspolicy.Role]*guard{awspolicy.Owner: owner, awspolicy.Writer: writer, awspolicy.Reader: reader} {
		allowed, denied := g.asked()
		for _, r := range denied {
			if slices.Contains(settings, r.Action) {
				continue
			}
			// A server that may not delete leaves what it tried the store with, and
			// snapshots that the owner deletes.
			leaves := r.Action == "s3:DeleteObject" && (strings.Contains(r.Resource, "/prod/probe/") || strings.Contains(r.Resource, "/prod/blobs/"))
			creates := r.Action == "s3:PutObject" && strings.HasSuffix(r.Resource, "/meta.json") // which is the owner's to do
			if role != awspolicy.Writer || !leaves && !creates {
				t.Errorf("%v: a server needs what its policy denies: %s", role, r.text())
			}
		}
		identity := awspolicy.Identity(where, role, awspolicy.Notifications{})
		for _, s := range identity.Statement {
			for _, unused := range needless(s, allowed) {
				t.Errorf("%v: nothing needs %s of %s", role, s.Sid, unused)
			}
		}
	}
}

// needless are the actions, resources and prefixes of s that no request needs.
func needless(s awspolicy.Statement, requests []request) (all []string) {
	used := map[string]bool{}
	for _, r := range requests {
		for _, resource := range about(s, r) {
			used[r.Action], used[resource] = true, true
			for _, prefix := range s.Condition["StringLike"]["s3:prefix"] {
				if like(prefix, r.Context["s3:prefix"]) {
					used[prefix] = true
				}
			}
		}
	}
	for _, what := range slices.Concat(s.Action, s.Resource, s.Condition["StringLike"]["s3:prefix"]) {
		if !used[what] {
			all = append(all, what)
		}
	}
	return all
}
