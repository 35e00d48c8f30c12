package journaltest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal"
)

func checkBlobs(e *env) {
	hs := e.handles(2)
	_, err := hs[0].GetBlob(e.ctx, "missing")
	e.wantErr("GetBlob of what is not there", err, journal.ErrNoBlob)
	if err := hs[0].DeleteBlob(e.ctx, "missing"); err != nil {
		e.Fatalf("DeleteBlob of what is not there = %v, want nil", err)
	}
	for i, data := range [][]byte{[]byte("old"), pattern(1, 3<<20), []byte("new"), {}} {
		buf := bytes.Clone(data)
		e.put(hs[i%2], "snapshot", buf)
		for j := range buf {
			buf[j] = '!' // the caller's again
		}
		e.wantBlob(hs[0], "snapshot", data)
		e.wantBlob(hs[1], "snapshot", data)
	}
	e.put(hs[0], "kept", []byte("kept"))
	got, err := hs[0].GetBlob(e.ctx, "kept")
	if err != nil {
		e.Fatalf("GetBlob(kept) = %v", err)
	}
	got[0] = '!' // the caller owns what GetBlob returned
	e.wantBlob(hs[0], "kept", []byte("kept"))
	if err := hs[0].DeleteBlob(e.ctx, "snapshot"); err != nil {
		e.Fatalf("DeleteBlob(snapshot) = %v", err)
	}
	s := e.reopen(hs[0])
	e.wantBlob(s, "kept", []byte("kept"))
	_, err = s.GetBlob(e.ctx, "snapshot")
	e.wantErr("GetBlob of what was deleted", err, journal.ErrNoBlob)
	e.wantRecords(s, 1, nil) // blobs are beside the journal, not in it
}

func checkBlobNames(e *env) {
	s := e.open()
	names := []string{"a", "b/c", "d/e/f", "a.b", "a-b", "a_b", "a.tmp", "0", "-", "snap/00000000000000000001", "snap/1.zst", "meta.json", "lock", "journal/1"}
	for _, name := range names {
		e.put(s, name, []byte("blob "+name))
	}
	for _, name := range names {
		e.wantBlob(s, name, []byte("blob "+name))
	}
	for _, name := range []string{"", "/", "/a", "a/", "a//b", "A", "a b", "ä", "a\x00", `a\b`, "a%2fb", ".", "..", "../a", "a/../b"} {
		if err := s.PutBlob(e.ctx, name, []byte("bad")); err == nil {
			e.Errorf("PutBlob(%q) = nil, want an error: the name breaks the rules", name)
		}
	}
	slices.Sort(names)
	e.wantList(s, "", names)
	e.wantList(e.reopen(s), "", names)
}

func checkBlobList(e *env) {
	hs := e.handles(2)
	e.wantList(hs[0], "", nil)
	for _, name := range []string{"snap/9", "snap/10", "snap/1", "snapper", "log/1", "snap.old/1"} {
		e.put(hs[0], name, []byte(name))
	}
	for _, h := range hs {
		e.wantList(h, "", []string{"log/1", "snap.old/1", "snap/1", "snap/10", "snap/9", "snapper"})
		e.wantList(h, "snap", []string{"snap.old/1", "snap/1", "snap/10", "snap/9", "snapper"})
		e.wantList(h, "snap/", []string{"snap/1", "snap/10", "snap/9"})
		e.wantList(h, "snap/1", []string{"snap/1", "snap/10"})
		e.wantList(h, "other", nil)
	}
	if err := hs[1].DeleteBlob(e.ctx, "snap/10"); err != nil {
		e.Fatalf("DeleteBlob = %v", err)
	}
	e.wantList(hs[0], "snap/", []string{"snap/1", "snap/9"})
}

func checkBlobsConcurrent(e *env) {
	const writers, rounds = 4, 15
	hs := e.handles(writers)
	e.put(hs[0], "shared", bytes.Repeat([]byte{0}, 1000))
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i, h := range hs {
		wg.Go(func() {
			for r := range rounds {
				own := fmt.Sprintf("own/%d/%d", i, r)
				data := bytes.Repeat([]byte{byte(i)}, 1000+i*30_000)
				errs[i] = errors.Join(errs[i], h.PutBlob(e.ctx, "shared", data), h.PutBlob(e.ctx, own, data))
				got, err := h.GetBlob(e.ctx, "shared")
				if err == nil && (len(got) == 0 || len(got) != 1000+int(got[0])*30_000 || bytes.Count(got, got[:1]) != len(got)) {
					err = fmt.Errorf("a reader saw %d bytes that no writer put", len(got))
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		e.Fatal(err)
	}
	var want []string
	for i := range writers {
		for r := range rounds {
			name := fmt.Sprintf("own/%d/%d", i, r)
			want = append(want, name)
			e.wantBlob(hs[0], name, bytes.Repeat([]byte{byte(i)}, 1000+i*30_000))
		}
	}
	slices.Sort(want)
	e.wantList(hs[0], "own/", want)
}

func (e *env) put(s journal.Store, name string, data []byte) {
	e.Helper()
	if err := s.PutBlob(e.ctx, name, data); err != nil {
		e.Fatalf("PutBlob(%q) = %v", name, err)
	}
}

func (e *env) wantBlob(s journal.Store, name string, want []byte) {
	e.Helper()
	got, err := s.GetBlob(e.ctx, name)
	if err != nil || !bytes.Equal(got, want) {
		e.Fatalf("GetBlob(%q) = %s, %v; want %s", name, brief(got), err, brief(want))
	}
}

func (e *env) wantList(s journal.Store, prefix string, want []string) {
	e.Helper()
	got, err := s.ListBlobs(e.ctx, prefix)
	if err != nil || !slices.Equal(got, want) {
		e.Fatalf("ListBlobs(%q) = %q, %v; want %q", prefix, got, err, want)
	}
}
