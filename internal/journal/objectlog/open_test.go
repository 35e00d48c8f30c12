package objectlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/devstore"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3bucket"
)

// answers is a store that gives one answer to everything.
func answers(status int, code string, header ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		objecttest.Answer(w, status, code)
	})
}

// page is a server that is no object store, and happy with every request.
func page(contentType, etag string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		fmt.Fprint(w, "<!DOCTYPE html><title>Sign in</title>")
	})
}

// TestPutAnsweredByAnother: where something on the way, such as a proxy, says
// 200 to a PUT itself, nothing is acknowledged that the store does not have.
func TestPutAnsweredByAnother(t *testing.T) {
	store := memoryStore(t)
	for name, other := range map[string]http.Handler{
		"a web page":    page("text/html", `"an etag"`),
		"an empty body": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	} {
		t.Run(name, func(t *testing.T) {
			var between atomic.Bool
			cfg := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if between.Load() && r.Method == http.MethodPut {
					other.ServeHTTP(w, r)
					return
				}
				store.ServeHTTP(w, r)
			}))
			cfg.Prefix = fmt.Sprint(len(name))
			l := mustOpen(t, cfg)
			between.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := l.Append(ctx, 1, []byte("a")); err == nil || errors.Is(err, journal.ErrTaken) {
				t.Errorf("Append = %v; want an unknown outcome", err)
			}
			between.Store(false)
			if recs, err := l.Read(t.Context(), 1, 1); err != nil || len(recs) > 0 {
				t.Errorf("Read = %q, %v; want nothing", recs, err)
			}
		})
	}
}

// TestOpenRefuses: what is wrong gets one sentence that names it and says
// what to do.
func TestOpenRefuses(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)

	for name, test := range map[string]struct {
		store http.Handler
		spoil func(*Config)
		want  string
	}{
		"no bucket":         {memoryStore(t), func(c *Config) { c.Bucket = "missing" }, `bucket "missing" does not exist at http://127.0.0.1`},
		"not a bucket name": {memoryStore(t), func(c *Config) { c.Bucket = "No/Bucket" }, `bucket name "No/Bucket" is not valid`},
		"bad prefix":        {memoryStore(t), func(c *Config) { c.Prefix = "a/../b" }, `prefix "a/../b" is not valid`},
		"denied":            {answers(403, "AccessDenied"), nil, "access to s3://journals/some/where is denied by http://127.0.0.1"},
		"unknown key":       {answers(403, "InvalidAccessKeyId"), nil, "does not accept the credentials (InvalidAccessKeyId)"},
		"expired":           {answers(400, "ExpiredToken"), nil, "does not accept the credentials (ExpiredToken)"},
		"clock":             {answers(403, "RequestTimeTooSkewed"), nil, "set the clock"},
		"wrong region":      {answers(400, "AuthorizationHeaderMalformed"), nil, `bucket "journals" is not in the region us-east-1`},
		"other region":      {answers(301, "PermanentRedirect", "x-amz-bucket-region", "eu-west-1"), nil, "write region=eu-west-1 in --journal"},
		"overloaded":        {answers(503, "SlowDown"), nil, "answered 503 SlowDown; the store is overloaded or in trouble, try again"},
		"not implemented":   {answers(501, "NotImplemented"), nil, "does not implement a request that a journal needs (501 NotImplemented); use a store with conditional PUTs"},
		"full":              {answers(507, "InsufficientStorage"), nil, "has no room left (507 InsufficientStorage); make room"},
		"a web page":        {page("text/html; charset=utf-8", `"an etag"`), nil, "is no S3 store: it answers with a web page where objects should be; check that the endpoint"},
		"any answer":        {page("application/json", ""), nil, "is no S3 store: it answers 200 without an ETag; check that the endpoint"},
		"no S3":             {nil, func(c *Config) { c.Endpoint = plain.URL }, "check"},
		"store is down":     {nil, func(c *Config) { c.Endpoint = "http://" + closed.Addr().String() }, "refuses connections; check that the store runs"},
		"unknown CA":        {nil, func(c *Config) { c.Endpoint = secure.URL }, "is not trusted"},
		"https to http":     {nil, func(c *Config) { c.Endpoint = strings.Replace(plain.URL, "http:", "https:", 1) }, "write http:// in the endpoint"},
		"no such name":      {nil, func(c *Config) { c.Endpoint = "http://store.invalid" }, `the name "store.invalid" of the store cannot be resolved`},
		"secret in URL":     {nil, func(c *Config) { c.Endpoint = "http://key:hunter2@localhost" }, "endpoint carries credentials"},
		"nothing to read":   {memoryStore(t), func(c *Config) { c.ReadOnly = true }, "there is no journal at s3://journals/some/where"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := test.store
			if store == nil {
				store = http.NotFoundHandler()
			}
			f := objecttest.NewFaults(store, objecttest.S3, nil)
			cfg := serve(t, f)
			if test.spoil != nil {
				test.spoil(&cfg)
			}
			_, err := openS3(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("Open = %v, want it to say %q", err, test.want)
			}
			if text := err.Error(); strings.Contains(text, "\n") || strings.Contains(text, "hunter2") || strings.Contains(text, "operation error") {
				t.Errorf("Open = %v, want one sentence without secrets", err)
			}
			if puts := f.Count(http.MethodPut); puts != 0 {
				t.Errorf("a refused journal took %d PUTs", puts)
			}
		})
	}
}

// TestOpenRefusesContent: a journal that is of another version, or not whole, is
// refused.
func TestOpenRefusesContent(t *testing.T) {
	for name, test := range map[string]struct {
		object, content string
		want            string
		is              error
	}{
		"newer":          {metaName, `{"format":9,"journal":"00112233445566778899aabbccddeeff"}`, "newer format (9; this xb reads ", journal.ErrNewerFormat},
		"newer, renamed": {metaName, `{"format":7,"id":"x"}`, "use the xb that wrote it", journal.ErrNewerFormat},
		"older":          {metaName, `{"format":2,"journal":"00112233445566778899aabbccddeeff"}`, "start a new journal", journal.ErrOlderFormat},
		"not JSON":       {metaName, `<html>`, "meta.json does not describe a journal", journal.ErrCorrupt},
		"empty":          {metaName, ``, "restore it", journal.ErrCorrupt},
		"no id":          {metaName, `{"format":1}`, "meta.json does not describe a journal", journal.ErrCorrupt},
		"short id":       {metaName, `{"format":1,"journal":"0011"}`, "meta.json does not describe a journal", journal.ErrCorrupt},
		"slots only":     {slotName(1), `whatever`, "there are slots but no meta.json", nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := serve(t, memoryStore(t))
			raw, err := s3bucket.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := raw.Put(t.Context(), test.object, []byte(test.content)); err != nil {
				t.Fatal(err)
			}
			before := keys(t, cfg)
			_, err = openS3(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("Open = %v, want it to say %q", err, test.want)
			}
			if after := keys(t, cfg); !slices.Equal(before, after) {
				t.Errorf("a refused journal changed the bucket from %q to %q", before, after)
			}
		})
	}
}

// lacking is a store that denies one right to everybody. As S3 does, it denies to tell
// whether an object is there to whom may not list.
func lacking(right string, store http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		listing := r.Method == http.MethodGet && r.URL.Query().Has("list-type")
		needs := map[string]string{http.MethodGet: "s3:GetObject", http.MethodPut: "s3:PutObject", http.MethodDelete: "s3:DeleteObject"}[r.Method]
		if listing {
			needs = "s3:ListBucket"
		}
		if needs == right {
			objecttest.Answer(w, http.StatusForbidden, "AccessDenied")
			return
		}
		answer := httptest.NewRecorder()
		store.ServeHTTP(answer, r)
		if right == "s3:ListBucket" && answer.Code == http.StatusNotFound {
			objecttest.Answer(w, http.StatusForbidden, "AccessDenied")
			return
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // a client that is gone
	})
}

// TestCredentialsThatLackARight: the right is named, and nothing is written, whether there is
// a journal or not.
func TestCredentialsThatLackARight(t *testing.T) {
	for _, there := range []bool{false, true} {
		for _, right := range []string{"s3:GetObject", "s3:PutObject", "s3:ListBucket"} {
			t.Run(fmt.Sprint(right, there), func(t *testing.T) {
				store := memoryStore(t)
				cfg := serve(t, store)
				if there {
					mustOpen(t, cfg)
				}
				before := keys(t, cfg)
				_, err := openS3(t.Context(), serve(t, lacking(right, store)))
				if err == nil || !strings.Contains(err.Error(), "lack ") || !strings.Contains(err.Error(), right+" on ") || !strings.Contains(err.Error(), "xb aws policy prints") || strings.Contains(err.Error(), "\n") {
					t.Errorf("Open = %v, want a sentence that names %s", err, right)
				}
				if after := keys(t, cfg); !slices.Equal(before, after) {
					t.Errorf("the bucket held %q before, and holds %q", before, after)
				}
			})
		}
	}
}

// TestOpenAtOnce: several processes that start first agree on the journal.
func TestOpenAtOnce(t *testing.T) {
	for seed := range uint64(5) {
		cfg := serve(t, objecttest.NewFaults(memoryStore(t), objecttest.S3, objecttest.Sometimes(seed, 0.2, objecttest.S3)))
		ids := make([]journal.ID, 8)
		errs := make([]error, len(ids))
		each(len(ids), func(i int) {
			l, err := openS3(context.Background(), cfg)
			if errs[i] = err; err == nil {
				ids[i] = l.Info().ID
				_ = l.Close()
			}
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if slices.ContainsFunc(ids, func(id journal.ID) bool { return id != ids[0] }) {
			t.Errorf("seed %d: journals %v, want one", seed, ids)
		}
	}
}

// TestOpenReadOnly: nothing is written, and everything is read.
func TestOpenReadOnly(t *testing.T) {
	l, f, cfg, _ := filled(t, 3)
	if err := l.PutBlob(t.Context(), "b", []byte("blob")); err != nil {
		t.Fatal(err)
	}
	f.Count(http.MethodPut)
	cfg.ReadOnly = true
	reader := mustOpen(t, cfg)
	wantRead(t, reader, 1, "1", "2", "3")
	if data, err := reader.GetBlob(t.Context(), "b"); err != nil || string(data) != "blob" {
		t.Errorf("GetBlob = %q, %v", data, err)
	}
	_, trim := reader.Trim(t.Context(), 3)
	for what, err := range map[string]error{
		"Append":     reader.Append(t.Context(), 4, []byte("x")),
		"PutBlob":    reader.PutBlob(t.Context(), "b", nil),
		"DeleteBlob": reader.DeleteBlob(t.Context(), "b"),
		"Trim":       trim,
	} {
		if !errors.Is(err, errReadOnly) {
			t.Errorf("%s = %v, want a refusal", what, err)
		}
	}
	if f.Count(http.MethodPut)+f.Count(http.MethodDelete) != 0 {
		t.Error("a reader changed the bucket")
	}
}

// TestAccounts: two accounts with credentials of their own share a journal;
// only its owner trims it, and a wrong secret gets a sentence.
func TestAccounts(t *testing.T) {
	store := gateway(t)
	cfg := Config{Bucket: testBucket, Prefix: "shared", Endpoint: store.Endpoint(), PathStyle: true}
	v, u := mustOpen(t, by(cfg, vendor)), mustOpen(t, by(cfg, tenant))
	if v.Info().ID != u.Info().ID {
		t.Fatal("two accounts opened two journals")
	}
	for slot, l := range []*Log{v, u, v, u} {
		if err := l.Append(t.Context(), journal.Slot(slot+1), fmt.Append(nil, slot+1)); err != nil {
			t.Fatal(err)
		}
	}
	wantRead(t, v, 1, "1", "2", "3", "4")
	wantRead(t, u, 1, "1", "2", "3", "4")
	v.floors.spans, u.floors.spans = atOnce, atOnce
	if _, err := u.Trim(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "only the journal's owner trims it") {
		t.Errorf("Trim by a tenant that is not the owner = %v", err)
	}
	if _, err := v.Trim(t.Context(), 3); err != nil {
		t.Errorf("Trim by the owner = %v", err)
	}
	wantRead(t, u, 3, "3", "4")

	for name, test := range map[string]struct {
		account devstore.Account
		want    string
	}{
		"wrong secret": {devstore.Account{AccessKey: "tenant", SecretKey: "hunter2-hunter2"}, "does not accept the credentials (SignatureDoesNotMatch)"},
		"unknown key":  {devstore.Account{AccessKey: "nobody", SecretKey: "hunter2-hunter2"}, "does not accept the credentials (InvalidAccessKeyId)"},
	} {
		_, err := openS3(t.Context(), by(cfg, test.account))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: Open = %v, want it to say %q", name, err, test.want)
		}
	}
	missing := by(cfg, tenant)
	missing.Bucket = "missing"
	if _, err := openS3(t.Context(), missing); err == nil || !strings.Contains(err.Error(), `bucket "missing" does not exist`) {
		t.Errorf("Open in a bucket that is not there = %v", err)
	}
}

// TestStoreGoesAway: while the store is gone calls fail, and all goes on once
// it is back; records that were acknowledged before kill -9 are there.
func TestStoreGoesAway(t *testing.T) {
	store := gateway(t)
	cfg := Config{Bucket: testBucket, Prefix: "outage", Endpoint: store.Endpoint(), PathStyle: true}
	l := mustOpen(t, by(cfg, tenant))
	if err := l.Append(t.Context(), 1, []byte("before")); err != nil {
		t.Fatal(err)
	}
	store.Kill()
	if _, err := l.Read(t.Context(), 2, 1); err == nil || !strings.Contains(err.Error(), "refuses connections") {
		t.Errorf("Read while the store is gone = %v", err)
	}
	appended := make(chan error, 1)
	go func() { appended <- l.Append(t.Context(), 2, []byte("meanwhile")) }()
	store.Restart()
	if err := <-appended; err != nil {
		t.Errorf("Append over an outage = %v, want nil once the store is back", err)
	}
	wantRead(t, l, 1, "before", "meanwhile")
}

// TestNoMetadataService: with an endpoint, nothing but the endpoint is asked,
// not even for credentials.
func TestNoMetadataService(t *testing.T) {
	metadata := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the instance metadata service was asked for %s", r.URL.Path)
	}))
	t.Cleanup(metadata.Close)
	for name, value := range map[string]string{
		"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.URL,
		"AWS_CONFIG_FILE":                   "/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE":       "/dev/null",
		"AWS_ACCESS_KEY_ID":                 "",
		"AWS_SECRET_ACCESS_KEY":             "",
		"AWS_PROFILE":                       "",
	} {
		t.Setenv(name, value)
	}
	cfg := serve(t, memoryStore(t))
	mustOpen(t, cfg) // credentials wired in
	cfg.Credentials = nil
	if _, err := openS3(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "no credentials for http://127.0.0.1") {
		t.Errorf("Open without credentials = %v", err)
	}
	cfg.Profile = "absent"
	if _, err := openS3(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("Open with a profile that is not there = %v", err)
	}
	cfg.Profile = ""
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	mustOpen(t, cfg)
}
