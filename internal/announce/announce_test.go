package announce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/xbernetes/xbernetes/internal/announce"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

var started = time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)

func server(writer mvcc.WriterID, name string) announce.Server {
	return announce.Server{Writer: writer, Name: name, Account: "vendor", Version: "v1.0.0", Started: started}
}

func mustPut(t *testing.T, blobs journal.Blobs, s announce.Server) {
	t.Helper()
	if err := announce.Put(t.Context(), blobs, s); err != nil {
		t.Fatal(err)
	}
}

func wantServers(t *testing.T, blobs journal.Blobs, want ...announce.Server) {
	t.Helper()
	got, more, err := announce.List(t.Context(), blobs)
	if err != nil || more != 0 {
		t.Fatalf("%d more, %v", more, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("announcements (-want +got):\n%s", diff)
	}
}

// keepsAll denies deletions.
type keepsAll struct{ journal.Store }

func (keepsAll) DeleteBlob(context.Context, string) error { return errors.New("denied") }

// TestRestart: the announcement of a start replaces that of the start before, if this
// account may delete it.
func TestRestart(t *testing.T) {
	store := memlog.New(memlog.Options{}).Open()
	mustPut(t, store, server(1, "a"))
	mustPut(t, store, server(2, "b"))
	mustPut(t, store, server(3, "a"))
	wantServers(t, store, server(2, "b"), server(3, "a"))
	mustPut(t, keepsAll{store}, server(4, "b"))
	wantServers(t, store, server(2, "b"), server(3, "a"), server(4, "b"))
}

// TestHostileAnnouncements: what is no announcement is passed over, and no name holds
// what a terminal or a table would act on.
func TestHostileAnnouncements(t *testing.T) {
	store := memlog.New(memlog.Options{}).Open()
	for i, data := range []string{
		"", "{", "[]", `{"name":""}`, `{"name":"a b"}`, `{"name":"\u001b[2J"}`, `{"name":"a\nb"}`, `{"name":"\u202efdp"}`, `{"name":"é"}`,
		`{"name":"` + strings.Repeat("a", 64) + `"}`, `{"name":"a","account":"\u0007"}`, `{"name":"a","version":"1 2"}`,
		`{"name":"a","started":"yesterday"}`, `{"name":"a","x":"` + strings.Repeat("a", 1<<10) + `"}`,
	} {
		if err := store.PutBlob(t.Context(), fmt.Sprintf("%s%016x", announce.Prefix, i), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"1", "000000000000000g", "00000000000000001", "0000000000000001/2"} {
		if err := store.PutBlob(t.Context(), announce.Prefix+name, []byte(`{"name":"a"}`)); err != nil {
			t.Fatal(err)
		}
	}
	wantServers(t, store)
	if err := announce.Put(t.Context(), store, announce.Server{Writer: 1, Name: "a\x1b"}); err == nil {
		t.Error("a name with an escape was announced")
	}
}

// TestManyAnnouncements: however many there are, 256 are read.
func TestManyAnnouncements(t *testing.T) {
	store := memlog.New(memlog.Options{}).Open()
	for i := range 300 {
		if err := store.PutBlob(t.Context(), fmt.Sprintf("%s%016x", announce.Prefix, i), []byte(`{"name":"a"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if servers, more, err := announce.List(t.Context(), store); len(servers) != 256 || more != 44 || err != nil {
		t.Errorf("%d announcements, %d more, %v", len(servers), more, err)
	}
}
