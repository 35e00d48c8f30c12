package devstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/xbernetes/xbernetes/internal/devstore"
	"github.com/xbernetes/xbernetes/internal/devstore/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const bucket = "shared"

var (
	vendor = devstore.Account{AccessKey: "vendor", SecretKey: "vendor-secret", Owner: true}
	tenant = devstore.Account{AccessKey: "tenant", SecretKey: "tenant-secret"}
)

// client speaks to the bucket with one account's credentials.
type client struct {
	t *testing.T
	*s3.Client
}

func as(t *testing.T, endpoint string, account devstore.Account) client {
	return client{t, s3.New(s3.Options{
		BaseEndpoint:               &endpoint,
		UsePathStyle:               true,
		Region:                     devstore.Region,
		Credentials:                credentials.NewStaticCredentialsProvider(account.AccessKey, account.SecretKey, ""),
		Retryer:                    aws.NopRetryer{},
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	})}
}

func (c client) put(key, body string, ifNoneMatch *string) error {
	_, err := c.PutObject(c.t.Context(), &s3.PutObjectInput{Bucket: aws.String(bucket), Key: &key, Body: strings.NewReader(body), IfNoneMatch: ifNoneMatch})
	return err
}

func (c client) get(key string) (string, error) {
	out, err := c.GetObject(c.t.Context(), &s3.GetObjectInput{Bucket: aws.String(bucket), Key: &key})
	if err != nil {
		return "", err
	}
	defer out.Body.Close()
	data, err := io.ReadAll(out.Body)
	return string(data), err
}

func (c client) remove(key string) error {
	_, err := c.DeleteObject(c.t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: &key})
	return err
}

// want checks that err has S3's code, "" for no error.
func want(t *testing.T, what string, err error, code string) {
	t.Helper()
	var api smithy.APIError
	got := ""
	if errors.As(err, &api) {
		got = api.ErrorCode()
	} else if err != nil {
		got = err.Error()
	}
	if got != code {
		t.Errorf("%s: %q, want %q", what, got, code)
	}
}

func TestAccounts(t *testing.T) {
	store := storetest.Start(t, devstore.Config{Dir: t.TempDir(), Bucket: bucket, Accounts: []devstore.Account{vendor, tenant}})
	v, u := as(t, store.Endpoint(), vendor), as(t, store.Endpoint(), tenant)
	once := aws.String("*")

	want(t, "vendor creates a slot", v.put("p/journal/1", "one", once), "")
	want(t, "tenant creates it again", u.put("p/journal/1", "usurper", once), "PreconditionFailed")
	want(t, "tenant creates the next", u.put("p/journal/2", "two", once), "")
	for key, body := range map[string]string{"p/journal/1": "one", "p/journal/2": "two"} {
		for _, c := range []client{v, u} {
			got, err := c.get(key)
			want(t, "read "+key, err, "")
			if got != body {
				t.Errorf("%s holds %q, want %q", key, got, body)
			}
		}
	}
	_, err := u.get("p/journal/3")
	want(t, "read an absent slot", err, "NoSuchKey")
	list, err := u.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(bucket), Prefix: aws.String("p/journal/")})
	want(t, "tenant lists", err, "")
	if err == nil && len(list.Contents) != 2 {
		t.Errorf("tenant sees %d slots, want 2", len(list.Contents))
	}

	want(t, "tenant deletes a slot", u.remove("p/journal/1"), "AccessDenied")
	want(t, "tenant deletes the floor", u.remove("p/floor/1"), "AccessDenied")
	for _, key := range []string{"p/blobs/a", "p/probe/a", "blobs/a", "probe/a"} {
		want(t, "tenant puts "+key, u.put(key, "x", nil), "")
		want(t, "tenant deletes "+key, u.remove(key), "")
	}
	want(t, "owner deletes a slot", v.remove("p/journal/1"), "")

	_, err = u.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("another")})
	want(t, "tenant creates a bucket", err, "AccessDenied")
	_, err = u.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: aws.String(bucket), Policy: aws.String("{}")})
	want(t, "tenant changes the policy", err, "AccessDenied")

	thief := devstore.Account{AccessKey: tenant.AccessKey, SecretKey: "guessed-secret"}
	_, err = as(t, store.Endpoint(), thief).get("p/journal/2")
	want(t, "read with a wrong secret", err, "SignatureDoesNotMatch")
	_, err = as(t, store.Endpoint(), devstore.Account{AccessKey: "nobody", SecretKey: "guessed-secret"}).get("p/journal/2")
	want(t, "read as nobody", err, "InvalidAccessKeyId")
	want(t, "write as root", as(t, store.Endpoint(), devstore.Account{AccessKey: "devstore-root", SecretKey: "guessed-secret"}).put("x", "x", nil), "SignatureDoesNotMatch")
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	store := storetest.Start(t, devstore.Config{Dir: dir, Bucket: bucket, Accounts: []devstore.Account{vendor, tenant}})
	endpoint := store.Endpoint()
	for i, stop := range []func(){store.Stop, store.Kill} {
		key := string(rune('a' + i))
		want(t, "write", as(t, endpoint, vendor).put("p/"+key, "kept", nil), "")
		stop()
		if _, err := as(t, endpoint, vendor).get("p/" + key); err == nil {
			t.Fatal("the store answers after it was stopped")
		}
		store.Restart()
		if store.Endpoint() != endpoint {
			t.Fatalf("the store moved from %s to %s", endpoint, store.Endpoint())
		}
		got, err := as(t, endpoint, tenant).get("p/" + key)
		want(t, "read after a restart", err, "")
		if got != "kept" {
			t.Errorf("read %q after a restart, want %q", got, "kept")
		}
		want(t, "create again after a restart", as(t, endpoint, tenant).put("p/"+key, "lost", aws.String("*")), "PreconditionFailed")
	}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte("-secret")) {
			t.Errorf("%s holds a secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDelayProxy(t *testing.T) {
	const latency = 80 * time.Millisecond
	store := storetest.Start(t, devstore.Config{Dir: t.TempDir(), Bucket: bucket, Accounts: []devstore.Account{vendor}})
	proxy, err := devstore.OpenDelay(devstore.DelayConfig{Target: store.Addr(), Latency: latency})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() {
		if err := proxy.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-proxy.Ready()
	near, far := as(t, store.Endpoint(), vendor), as(t, proxy.Endpoint(), vendor)
	want(t, "write through the proxy", far.put("p/a", "far", nil), "")
	for range 3 { // the first opened the connection
		start := time.Now()
		got, err := far.get("p/a")
		took := time.Since(start)
		want(t, "read through the proxy", err, "")
		if got != "far" || took < latency {
			t.Errorf("read %q through the proxy in %v, want %q in at least %v", got, took, "far", latency)
		}
	}
	got, err := near.get("p/a")
	want(t, "read beside the proxy", err, "")
	if got != "far" {
		t.Errorf("read %q beside the proxy, want %q", got, "far")
	}
	store.Kill()
	if err := far.put("p/b", "lost", nil); err == nil {
		t.Error("write through the proxy to a store that is gone: nil, want an error")
	}
	store.Restart()
	want(t, "write through the proxy to a store that is back", far.put("p/b", "back", nil), "")
	cancel()
	run.Wait()
	if _, err := net.Dial("tcp", proxy.Addr()); err == nil {
		t.Error("the proxy takes connections after Run ended")
	}
}

func TestBadInput(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	good := devstore.Config{Dir: t.TempDir(), Bucket: bucket, Accounts: []devstore.Account{vendor}}
	for name, test := range map[string]struct {
		spoil func(*devstore.Config)
		want  string
	}{
		"no directory":   {func(c *devstore.Config) { c.Dir = "" }, "no directory"},
		"no account":     {func(c *devstore.Config) { c.Accounts = nil }, "no account"},
		"bad bucket":     {func(c *devstore.Config) { c.Bucket = "A/b" }, `bucket name "A/b" is not valid`},
		"short secret":   {func(c *devstore.Config) { c.Accounts = []devstore.Account{{AccessKey: "abc", SecretKey: "hunter2"}} }, `secret key of "abc" is shorter`},
		"same key twice": {func(c *devstore.Config) { c.Accounts = []devstore.Account{vendor, vendor} }, "given twice"},
		"all interfaces": {func(c *devstore.Config) { c.Listen = ":0" }, "not on loopback"},
		"remote":         {func(c *devstore.Config) { c.Listen = "192.0.2.1:0" }, "not on loopback"},
		"any, remote":    {func(c *devstore.Config) { c.Listen, c.AllowRemote = "0.0.0.0:0", true }, "not on loopback"},
		"no port":        {func(c *devstore.Config) { c.Listen = "127.0.0.1" }, "want host:port"},
		"port in use":    {func(c *devstore.Config) { c.Listen = busy.Addr().String() }, "choose another port"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			test.spoil(&cfg)
			_, err := devstore.Open(cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Open = %v, want it to say %q", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("Open = %v, which repeats a secret", err)
			}
		})
	}
}
