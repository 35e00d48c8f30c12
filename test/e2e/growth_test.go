package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/test/lab/xbetcd"
)

// TestGrowth: hours of creates, updates and deletes at one a second, on a store that really
// deletes and whose clock goes as fast as it is written to. What the store holds, and what a
// server that starts asks for, is bounded however much was written.
func TestGrowth(t *testing.T) {
	const (
		pace    = time.Second
		writes  = 12000 // three hours and twenty minutes
		grows   = writes / 2
		keys    = 300
		compact = 300 // writes: five minutes
	)
	store := newHurriedStore(t, pace)
	address := httptest.NewServer(store)
	t.Cleanup(address.Close)
	journal := fmt.Sprintf("s3://%s/growth?region=us-east-1&path-style=true&endpoint=%s", bucket, address.URL)
	server := xbetcd.Start(t, vendorAccount.Env(), journal, "--trim", "always")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, DialTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	want := map[string]string{}
	random := rand.NewChaCha8([32]byte{})
	text := make([]byte, 750) // which nothing compresses
	var most held             // while it grew
	for n := range writes {
		_, _ = random.Read(text)
		key, value := fmt.Sprint("/growth/", n*7%keys), base64.StdEncoding.EncodeToString(text)
		var revision int64
		if _, there := want[key]; there && n%5 == 0 {
			res, err := client.Delete(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			delete(want, key)
			revision = res.Header.Revision
		} else {
			res, err := client.Put(t.Context(), key, value)
			if err != nil {
				t.Fatal(err)
			}
			want[key], revision = value, res.Header.Revision
		}
		if n%compact == compact-1 {
			if _, err := client.Compact(t.Context(), revision-1); err != nil {
				t.Fatal(err)
			}
		}
		if n%100 != 0 {
			continue
		}
		now, _ := store.look()
		if n < grows {
			most = held{max(most.records, now.records), max(most.others, now.others), max(most.bytes, now.bytes)}
		} else if now.records > most.records*3/2 || now.others > most.others*3/2 || now.bytes > most.bytes*3/2 {
			t.Fatalf("after %d writes the store holds %+v, and at most %+v in the first %d", n, now, most, grows)
		}
	}
	now, asked := store.look()
	t.Logf("the store held %+v at most in the first %d writes, and %+v after %d; it was sent %+v", most, grows, now, writes, asked)
	if asked.deletes < writes/2 || now.records > writes/2 {
		t.Errorf("%d records are left of %d, and %d DELETEs were sent", now.records, writes, asked.deletes)
	}

	server.Kill()
	_, before := store.look()
	server.Restart(t)
	got := all(t, client)
	if _, after := store.look(); after.gets-before.gets > now.records+now.others {
		t.Errorf("a server starts with %d GETs; the store holds %+v", after.gets-before.gets, now)
	} else {
		t.Logf("a server starts with %d GETs and %d LISTs", after.gets-before.gets, after.lists-before.lists)
	}
	if !maps.Equal(got, want) {
		t.Errorf("after kill -9 the server has %d keys, and %d were written and not deleted, or their values differ", len(got), len(want))
	}
}

// all returns the keys of the growth with their values.
func all(t *testing.T, client *clientv3.Client) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := client.Get(ctx, "/growth/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, kv := range res.Kvs {
		got[string(kv.Key)] = string(kv.Value)
	}
	return got
}
