package stage_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/xbernetes/xbernetes/internal/controlplane/stage"
)

// store starts an etcd for the test.
func store(t *testing.T) *clientv3.Client {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.UnsafeNoFsync = true
	any := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls, cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = any, any, any, any
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Clients[0].Addr().String()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// bench is a store, and the client that the API server's storage would have of it.
type bench struct {
	*testing.T
	etcd   *clientv3.Client
	client stage.Client
}

func newBench(t *testing.T) bench {
	etcd := store(t)
	plain := &etcdkubernetes.Client{Client: etcd}
	return bench{t, etcd, stage.Client{Interface: plain}}
}

// begin starts a transaction, and returns the context of its requests.
func (b bench) begin() (*stage.Txn, context.Context) {
	t := stage.New(stage.Store{KV: b.etcd.KV})
	return t, stage.With(b.Context(), t)
}

// put writes a key past all transactions, and returns its revision.
func (b bench) put(key, value string) int64 {
	b.Helper()
	resp, err := b.etcd.Put(b.Context(), key, value)
	if err != nil {
		b.Fatal(err)
	}
	return resp.Header.Revision
}

// stage puts a key in a transaction that sees it at a revision.
func (b bench) stage(ctx context.Context, key, value string, expected int64) int64 {
	b.Helper()
	resp, err := b.client.OptimisticPut(ctx, key, []byte(value), expected, etcdkubernetes.PutOptions{GetOnFailure: true})
	if err != nil || !resp.Succeeded {
		b.Fatalf("put %s at %d: %+v, %v", key, expected, resp, err)
	}
	return resp.Revision
}

// want compares what the store holds, whatever is staged.
func (b bench) want(key, value string) int64 {
	b.Helper()
	resp, err := b.etcd.Get(b.Context(), key)
	if err != nil {
		b.Fatal(err)
	}
	got, revision := "", int64(0)
	if len(resp.Kvs) == 1 {
		got, revision = string(resp.Kvs[0].Value), resp.Kvs[0].ModRevision
	}
	if got != value {
		b.Errorf("%s holds %q, want %q", key, got, value)
	}
	return revision
}

// wantSeen compares what a transaction sees.
func (b bench) wantSeen(ctx context.Context, key, value string) {
	b.Helper()
	resp, err := b.client.Get(ctx, key, etcdkubernetes.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	got := ""
	if resp.KV != nil {
		got = string(resp.KV.Value)
	}
	if got != value {
		b.Errorf("the transaction sees %q at %s, want %q", got, key, value)
	}
}

// TestCommit: what is staged is seen within, by nobody else before the commit, and by
// all after it at one revision.
func TestCommit(t *testing.T) {
	b := newBench(t)
	changed, gone := b.put("changed", "1"), b.put("gone", "1")
	txn, ctx := b.begin()
	b.stage(ctx, "made", "2", 0)
	b.stage(ctx, "changed", "2", changed)
	if resp, err := b.client.OptimisticDelete(ctx, "gone", gone, etcdkubernetes.DeleteOptions{}); err != nil || !resp.Succeeded {
		t.Fatal(resp, err)
	}
	for key, value := range map[string]string{"made": "2", "changed": "2", "gone": ""} {
		b.wantSeen(ctx, key, value)
	}
	for key, value := range map[string]string{"made": "", "changed": "1", "gone": "1"} {
		b.want(key, value)
	}
	revision, err := txn.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if made, changed := b.want("made", "2"), b.want("changed", "2"); made != revision || changed != revision {
		t.Errorf("the keys are at %d and %d, want %d", made, changed, revision)
	}
	b.want("gone", "")
}

// TestStagedOnStaged: a key may be changed several times; its last value is written once.
func TestStagedOnStaged(t *testing.T) {
	b := newBench(t)
	txn, ctx := b.begin()
	at := b.stage(ctx, "key", "1", 0)
	if !stage.Provisional(at) {
		t.Errorf("the staged value has revision %d, want a provisional one", at)
	}
	at = b.stage(ctx, "key", "2", at)
	if resp, err := b.client.OptimisticPut(ctx, "key", []byte("3"), 0, etcdkubernetes.PutOptions{}); err != nil || resp.Succeeded {
		t.Errorf("creating it again: %+v, %v, want that it exists", resp, err)
	}
	if resp, err := b.client.OptimisticDelete(ctx, "key", at, etcdkubernetes.DeleteOptions{}); err != nil || !resp.Succeeded {
		t.Errorf("deleting it: %+v, %v", resp, err)
	}
	b.stage(ctx, "key", "4", 0)
	if _, err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.want("key", "4")
}

// TestCommitRefuses: a change of any key that was looked at, made by others meanwhile,
// keeps the whole transaction from being written.
func TestCommitRefuses(t *testing.T) {
	b := newBench(t)
	for name, meanwhile := range map[string]func(){
		"changed": func() { b.put("read", "other") },
		"made":    func() { b.put("absent", "other") },
		"deleted": func() {
			if _, err := b.etcd.Delete(t.Context(), "read"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b.put("read", "1")
			if _, err := b.etcd.Delete(t.Context(), "absent"); err != nil {
				t.Fatal(err)
			}
			txn, ctx := b.begin()
			b.wantSeen(ctx, "read", "1")
			b.wantSeen(ctx, "absent", "")
			b.stage(ctx, "written", "1", 0)
			meanwhile()
			if same, err := txn.Confirm(t.Context()); err != nil || same {
				t.Errorf("Confirm = %v, %v, want false", same, err)
			}
			if _, err := txn.Commit(t.Context()); !errors.Is(err, stage.ErrConflict) {
				t.Errorf("Commit = %v, want a conflict", err)
			}
			b.want("written", "")
		})
	}
}

// TestOthersPassBy: a request without a transaction sees and changes the store at once.
func TestOthersPassBy(t *testing.T) {
	b := newBench(t)
	_, ctx := b.begin()
	b.stage(ctx, "key", "staged", 0)
	b.stage(t.Context(), "key", "plain", 0)
	b.want("key", "plain")
	b.wantSeen(t.Context(), "key", "plain")
	b.wantSeen(ctx, "key", "staged")
}

// TestLimits: a transaction has room for so many keys and bytes, and says when it has none.
func TestLimits(t *testing.T) {
	b := newBench(t)
	txn, ctx := b.begin()
	for n := range stage.MaxKeys {
		b.wantSeen(ctx, fmt.Sprint("key-", n), "")
	}
	if _, err := b.client.Get(ctx, "one more", etcdkubernetes.GetOptions{}); !errors.Is(err, stage.ErrTooLarge) || !errors.Is(txn.Err(), stage.ErrTooLarge) {
		t.Errorf("one key more: %v, %v, want that there is no room", err, txn.Err())
	}
	txn, ctx = b.begin()
	half := strings.Repeat("x", stage.MaxBytes/2)
	at := b.stage(ctx, "a", half, 0)
	b.stage(ctx, "a", half, at) // takes the room of the first
	if _, err := b.client.OptimisticPut(ctx, "b", []byte(half), 0, etcdkubernetes.PutOptions{}); !errors.Is(err, stage.ErrTooLarge) {
		t.Errorf("one byte too many: %v, want that there is no room", err)
	}
	if _, err := txn.Commit(t.Context()); err != nil {
		t.Fatalf("a transaction of that size: %v", err)
	}
}

// TestEnd: what is left of a request that took too long stages nothing.
func TestEnd(t *testing.T) {
	b := newBench(t)
	txn, ctx := b.begin()
	b.stage(ctx, "key", "1", 0)
	txn.End()
	if err := txn.Create(ctx, "late", []byte("1"), 0); !errors.Is(err, stage.ErrOver) {
		t.Errorf("a late write: %v, want that it is over", err)
	}
	if _, err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.want("late", "")
}
