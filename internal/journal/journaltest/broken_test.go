package journaltest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
)

// broken is a journal that keeps its promises but for what its fields say.
type broken struct {
	*memlog.Log
	info   func(journal.Info) journal.Info
	append func(ctx context.Context, slot journal.Slot, rec []byte) error
	read   func(ctx context.Context, from journal.Slot, limit int) ([][]byte, error)
	peek   func(ctx context.Context, slot journal.Slot) ([]byte, error)
	trim   func(ctx context.Context, before journal.Slot) (int, error)
	close  func() error
	put    func(ctx context.Context, name string, data []byte) error
	get    func(ctx context.Context, name string) ([]byte, error)
	list   func(ctx context.Context, prefix string) ([]string, error)
}

func (b *broken) Info() journal.Info { return b.info(b.Log.Info()) }
func (b *broken) Close() error       { return b.close() }
func (b *broken) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	return b.append(ctx, slot, rec)
}
func (b *broken) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	return b.read(ctx, from, limit)
}
func (b *broken) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	return b.peek(ctx, slot)
}
func (b *broken) Trim(ctx context.Context, before journal.Slot) (int, error) {
	return b.trim(ctx, before)
}
func (b *broken) PutBlob(ctx context.Context, name string, data []byte) error {
	return b.put(ctx, name, data)
}
func (b *broken) GetBlob(ctx context.Context, name string) ([]byte, error) { return b.get(ctx, name) }
func (b *broken) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	return b.list(ctx, prefix)
}

// breaks are ways to break a promise, each with the checks that must notice.
var breaks = []struct {
	name   string
	checks string
	damage func(b *broken)
}{
	{"no ID", "Empty", func(b *broken) {
		b.info = func(i journal.Info) journal.Info { i.ID = journal.ID{}; return i }
	}},
	{"says less than its depth", "AheadOverDepth", func(b *broken) {
		b.info = func(i journal.Info) journal.Info { i.Depth = 2; return i }
	}},
	{"says more than its depth", "AheadWithinDepth", func(b *broken) {
		b.info = func(i journal.Info) journal.Info { i.Depth = 12; return i }
	}},
	{"takes more than it says", "MaxRecord", func(b *broken) {
		b.info = func(i journal.Info) journal.Info { i.MaxRecord--; return i }
	}},
	{"both are told that they hold the slot", "Taken OneWinner NoGaps Reopen", func(b *broken) {
		b.append = func(ctx context.Context, slot journal.Slot, rec []byte) error {
			if err := b.Log.Append(ctx, slot, rec); !errors.Is(err, journal.ErrTaken) {
				return err
			}
			return nil
		}
	}},
	{"taken is some error", "Taken OneWinner NoGaps", func(b *broken) {
		b.append = func(ctx context.Context, slot journal.Slot, rec []byte) error {
			if err := b.Log.Append(ctx, slot, rec); err != nil {
				return errors.New("something went wrong")
			}
			return nil
		}
	}},
	{"loses what it acknowledged", "AppendRead NoGaps Reopen", func(b *broken) {
		b.append = func(ctx context.Context, slot journal.Slot, rec []byte) error {
			if slot%5 == 4 {
				return nil
			}
			return b.Log.Append(ctx, slot, rec)
		}
	}},
	{"keeps what the caller gave it, and gives away what it keeps", "BufferReuse", func(b *broken) {
		kept := make(map[journal.Slot][]byte)
		b.append = func(ctx context.Context, slot journal.Slot, rec []byte) error {
			kept[slot] = rec
			return b.Log.Append(ctx, slot, rec)
		}
		b.read = func(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
			recs, err := b.Log.Read(ctx, from, limit)
			for i := range recs {
				if rec, ok := kept[from+journal.Slot(i)]; ok {
					recs[i] = rec
				}
			}
			return recs, err
		}
	}},
	{"one buffer for all that it returns", "BufferReuse", func(b *broken) {
		b.read = func(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
			recs, err := b.Log.Read(ctx, from, limit)
			all := slices.Concat(recs...)
			for i := range recs {
				recs[i], all = all[:len(recs[i])], all[len(recs[i]):]
			}
			return recs, err
		}
	}},
	{"returns more than the limit", "Paging", func(b *broken) {
		b.read = func(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
			return b.Log.Read(ctx, from, limit+1)
		}
	}},
	{"an end that is none", "Paging", func(b *broken) {
		b.read = func(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
			if from == 32 {
				return nil, nil
			}
			return b.Log.Read(ctx, from, limit)
		}
	}},
	{"returns fewer than there are", "Paging", func(b *broken) {
		b.read = func(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
			return b.Log.Read(ctx, from, min(limit, 59))
		}
	}},
	{"cuts long records", "AppendRead Paging", func(b *broken) {
		b.append = func(ctx context.Context, slot journal.Slot, rec []byte) error {
			return b.Log.Append(ctx, slot, rec[:min(len(rec), 65_536)])
		}
	}},
	{"does not hear of a cancelled context", "Cancelled", func(b *broken) {
		b.append = func(ctx context.Context, slot journal.Slot, rec []byte) error {
			return b.Log.Append(context.WithoutCancel(ctx), slot, rec)
		}
	}},
	{"stays open", "Closed", func(b *broken) { b.close = func() error { return nil } }},
	{"does not trim", "Trim TrimAll", func(b *broken) {
		b.trim = func(context.Context, journal.Slot) (int, error) { return 0, nil }
	}},
	{"trims one slot too many", "Trim", func(b *broken) {
		b.trim = func(ctx context.Context, before journal.Slot) (int, error) { return b.Log.Trim(ctx, before+1) }
	}},
	{"deletes and does not say so", "Trim TrimAll", func(b *broken) {
		b.trim = func(ctx context.Context, before journal.Slot) (int, error) {
			_, err := b.Log.Trim(ctx, before)
			return 0, err
		}
	}},
	{"hides what is above an empty slot", "Peek", func(b *broken) {
		b.peek = func(ctx context.Context, slot journal.Slot) ([]byte, error) {
			recs, err := b.Log.Read(ctx, slot, 1)
			if err != nil || len(recs) == 0 {
				return nil, err
			}
			return recs[0], nil
		}
	}},
	{"a missing blob is an empty one", "Blobs Closed", func(b *broken) {
		b.get = func(ctx context.Context, name string) ([]byte, error) {
			data, err := b.Log.GetBlob(ctx, name)
			if errors.Is(err, journal.ErrNoBlob) {
				return nil, nil
			}
			return data, err
		}
	}},
	{"appends to a blob", "Blobs BlobsConcurrent", func(b *broken) {
		b.put = func(ctx context.Context, name string, data []byte) error {
			old, _ := b.Log.GetBlob(ctx, name)
			return b.Log.PutBlob(ctx, name, append(old, data...))
		}
	}},
	{"takes every name", "BlobNames", func(b *broken) {
		b.put = func(ctx context.Context, name string, data []byte) error {
			_ = b.Log.PutBlob(ctx, name, data)
			return ctx.Err()
		}
	}},
	{"lists in any order", "BlobNames BlobList", func(b *broken) {
		b.list = func(ctx context.Context, prefix string) ([]string, error) {
			names, err := b.Log.ListBlobs(ctx, prefix)
			slices.Reverse(names)
			return names, err
		}
	}},
	{"a prefix is a folder", "BlobList", func(b *broken) {
		b.list = func(ctx context.Context, prefix string) ([]string, error) {
			names, err := b.Log.ListBlobs(ctx, prefix)
			return slices.DeleteFunc(names, func(name string) bool {
				return prefix != "" && !strings.HasSuffix(prefix, "/") && !strings.HasPrefix(name, prefix+"/")
			}), err
		}
	}},
}

// brokenFixture opens handles on one memory store, each damaged.
func brokenFixture(damage func(*broken)) Fixture {
	store := memlog.New(memlog.Options{MaxRecord: 1<<20 + 1})
	return Fixture{Open: func(context.Context) (journal.Store, error) {
		l := store.Open()
		b := &broken{
			Log: l, info: func(i journal.Info) journal.Info { return i },
			append: l.Append, read: l.Read, peek: l.Peek, trim: l.Trim, close: l.Close,
			put: l.PutBlob, get: l.GetBlob, list: l.ListBlobs,
		}
		damage(b)
		return b, nil
	}}
}

// verdict is a testing.TB that keeps the failure to itself.
type verdict struct {
	testing.TB
	mu     sync.Mutex
	failed bool
}

func (v *verdict) fail() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = true
}

func (v *verdict) Error(...any)          { v.fail() }
func (v *verdict) Errorf(string, ...any) { v.fail() }
func (v *verdict) Fatal(...any)          { v.fail(); runtime.Goexit() }
func (v *verdict) Fatalf(string, ...any) { v.fail(); runtime.Goexit() }
func (v *verdict) Skip(...any)           { runtime.Goexit() }

// fails says whether the check c fails on fixture.
func fails(t *testing.T, c check, fixture Fixture) bool {
	v := &verdict{TB: t}
	var wg sync.WaitGroup
	wg.Go(func() { c.run(&env{TB: v, ctx: t.Context(), fixture: fixture}) })
	wg.Wait()
	return v.failed
}

// Every check fails on a store that breaks its promise, and on no other.
func TestChecksCanFail(t *testing.T) {
	noticed := make(map[string]bool)
	for _, br := range breaks {
		for _, c := range checks() {
			if !slices.Contains(strings.Fields(br.checks), c.name) {
				continue
			}
			noticed[c.name] = true
			if !fails(t, c, brokenFixture(br.damage)) {
				t.Errorf("a store that is broken so: %s: passes the check %s", br.name, c.name)
			}
			if fails(t, c, brokenFixture(func(*broken) {})) {
				t.Errorf("a sound store fails the check %s", c.name)
			}
		}
	}
	for _, c := range checks() {
		if !noticed[c.name] {
			t.Errorf("no broken store shows that the check %s can fail", c.name)
		}
	}
}
