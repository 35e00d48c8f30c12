package status_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/announce"
	"github.com/xbernetes/xbernetes/internal/fsck"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
	"github.com/xbernetes/xbernetes/internal/status"
)

// write puts keys through a replica of a journal, and returns its ID as a writer.
func write(t *testing.T, store journal.Store, puts int) mvcc.WriterID {
	t.Helper()
	r := replica.New(replica.Config{Store: store, Notifier: notify.NewPolling(time.Millisecond, 10*time.Millisecond), Logger: slog.New(slog.DiscardHandler), Snapshots: snapshot.Policy{EveryBytes: 8 << 10}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for i := range puts {
		if _, err := r.Propose(ctx, &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: fmt.Sprint(i % 7)}, Value: []byte("v")}}}); err != nil {
			t.Fatal(err)
		}
	}
	for puts >= 100 && r.Counts().Snapshots.Stored.Load() == 0 {
		time.Sleep(time.Millisecond) // the snapshot is taken beside
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return r.Writer()
}

func read(t *testing.T, store journal.Store) (*status.Report, string) {
	t.Helper()
	r, err := status.Read(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return r, text.String()
}

// stores are an empty journal of each kind that a test can have without a network.
var stores = map[string]func(t *testing.T) journal.Store{
	"memlog": func(*testing.T) journal.Store { return memlog.New(memlog.Options{}).Open() },
	"filelog": func(t *testing.T) journal.Store {
		store, err := filelog.Open(t.Context(), t.TempDir(), filelog.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	},
}

// TestServersAndSnapshots: each server is listed with its name if it gave one, its last
// record, and how many came after it.
func TestServersAndSnapshots(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			if r, _ := read(t, store); r.Last != 0 || len(r.Servers)+len(r.Snapshots)+len(r.Problems) != 0 {
				t.Errorf("an empty journal: %+v", r)
			}
			first, second := write(t, store, 100), write(t, store, 10)
			if err := announce.Put(t.Context(), store, announce.Server{Writer: first, Name: "a", Account: "vendor", Version: "v1", Started: time.Unix(1e9, 0)}); err != nil {
				t.Fatal(err)
			}
			r, text := read(t, store)
			if len(r.Servers) != 2 || len(r.Problems) != 0 {
				t.Fatalf("%d servers, problems %v", len(r.Servers), r.Problems)
			}
			newer, older := r.Servers[0], r.Servers[1]
			if newer.Writer != fsck.WriterID(second) || newer.Name != "" || newer.Last != r.Last || newer.Behind != 0 {
				t.Errorf("the newer server: %+v", newer)
			}
			if older.Writer != fsck.WriterID(first) || older.Name != "a" || older.Behind != r.Last-older.Last || older.Last < 100 {
				t.Errorf("the older server: %+v", older)
			}
			for _, sn := range r.Snapshots {
				if by := sn.Writer; by != fsck.WriterID(first) && by != fsck.WriterID(second) || sn.Bytes == 0 || sn.Written.IsZero() {
					t.Errorf("a snapshot without its writer, bytes or time: %+v", sn)
				}
			}
			if len(r.Snapshots) == 0 || !strings.Contains(text, "2001-09-09T01:46:40Z") || !strings.Contains(text, "vendor") {
				t.Errorf("%d snapshots, and the text\n%s", len(r.Snapshots), text)
			}
		})
	}
}

// TestProblems: what is wrong with the newest snapshot is said in a sentence.
func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		blob func(newest journal.Slot) (name, data string)
		want string
	}{
		"disputed":  {func(s journal.Slot) (string, string) { return snapshot.DisputeOf(s), "x" }, "is disputed"},
		"unusable":  {func(s journal.Slot) (string, string) { return snapshot.Folder(s) + "manifest.json", "{\x1b[2J" }, "cannot be used"},
		"past tail": {func(s journal.Slot) (string, string) { return snapshot.Folder(1e6) + "manifest.json", "{}" }, "its end is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			store := memlog.New(memlog.Options{}).Open()
			write(t, store, 100)
			r, _ := read(t, store)
			blob, data := c.blob(r.Snapshots[0].Slot)
			if err := store.PutBlob(t.Context(), blob, []byte(data)); err != nil {
				t.Fatal(err)
			}
			r, text := read(t, store)
			if !strings.Contains(strings.Join(r.Problems, "\n"), c.want) || !strings.Contains(text, "WRONG") || strings.Contains(text, "\x1b") {
				t.Errorf("problems %q, and the text\n%s", r.Problems, text)
			}
		})
	}
}
