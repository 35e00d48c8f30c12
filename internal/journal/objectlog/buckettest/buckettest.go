// Package buckettest is the one suite that every object store passes: each
// sentence of bucket.Store that a test can see, as a check. It knows no store by
// name.
package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// Run checks the stores that fresh makes, each empty at first.
func Run(t *testing.T, fresh func(t *testing.T) bucket.Store) {
	for name, check := range map[string]func(*testing.T, bucket.Store){
		"Create": checkCreate, "OneWinner": checkOneWinner, "Put": checkPut, "Get": checkGet, "Remove": checkRemove,
		"List": checkList, "ListGoesOn": checkListGoesOn, "Cancelled": checkCancelled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := fresh(t)
			t.Cleanup(store.Close)
			check(t, store)
		})
	}
}

// checkCreate: an object is created once, and is what it was then.
func checkCreate(t *testing.T, s bucket.Store) {
	for _, body := range []string{"", "x", string(make([]byte, 1<<20))} {
		name := fmt.Sprint("folder/", len(body))
		if at, err := s.Create(t.Context(), name, []byte(body)); err != nil || at.IsZero() {
			t.Fatalf("Create = %v, %v; want the store's time", at, err)
		}
		if _, err := s.Create(t.Context(), name, []byte("other")); !errors.Is(err, bucket.ErrExists) || bucket.Passing(err) {
			t.Errorf("Create over an object of %d bytes = %v, want ErrExists", len(body), err)
		}
		want(t, s, name, body)
	}
}

// checkOneWinner: of those that create one object at once one wins, and its bytes
// are stored.
func checkOneWinner(t *testing.T, s bucket.Store) {
	for round := range 10 {
		name := fmt.Sprint("race/", round)
		errs := make([]error, 16)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { _, errs[i] = s.Create(context.Background(), name, fmt.Append(nil, i)) })
		}
		all.Wait()
		winner := slices.Index(errs, nil)
		if winner < 0 {
			t.Fatalf("nobody won: %v", errs)
		}
		for i, err := range errs {
			if i != winner && !errors.Is(err, bucket.ErrExists) {
				t.Errorf("writer %d: %v, want ErrExists: writer %d won", i, err, winner)
			}
		}
		want(t, s, name, fmt.Sprint(winner))
	}
}

// checkPut: a Put replaces what is there.
func checkPut(t *testing.T, s bucket.Store) {
	for _, body := range []string{"one", "another", ""} {
		if err := s.Put(t.Context(), "blobs/a!b", []byte(body)); err != nil {
			t.Fatal(err)
		}
		want(t, s, "blobs/a!b", body)
	}
}

// checkGet: what is not there, or too long, is said to be.
func checkGet(t *testing.T, s bucket.Store) {
	if _, at, err := s.Get(t.Context(), "absent", 10); !errors.Is(err, bucket.ErrAbsent) || at.IsZero() {
		t.Errorf("Get of nothing = %v, %v; want ErrAbsent, and the store's time", at, err)
	}
	if held, err := s.Exists(t.Context(), "absent"); held || err != nil {
		t.Errorf("Exists of nothing = %v, %v", held, err)
	}
	put(t, s, "object", bytes.Repeat([]byte("x"), 10))
	if _, _, err := s.Get(t.Context(), "object", 9); !errors.Is(err, bucket.ErrTooLong) {
		t.Errorf("Get of at most 9 bytes of 10 = %v, want ErrTooLong", err)
	}
	if _, at, err := s.Get(t.Context(), "object", 10); err != nil || at.IsZero() {
		t.Errorf("Get = %v, %v; want the store's time", at, err)
	}
}

// checkRemove: what was removed is gone, and may be removed and created again.
func checkRemove(t *testing.T, s bucket.Store) {
	put(t, s, "object", []byte("x"))
	for range 2 {
		if err := s.Remove(t.Context(), "object"); err != nil {
			t.Fatal(err)
		}
	}
	if held, err := s.Exists(t.Context(), "object"); held || err != nil {
		t.Errorf("Exists = %v, %v after Remove", held, err)
	}
	if _, err := s.Create(t.Context(), "object", []byte("y")); err != nil {
		t.Errorf("Create after Remove = %v", err)
	}
}

// checkList: a listing has the names below a prefix, in order, with times by the
// clock that the answers have.
func checkList(t *testing.T, s bucket.Store) {
	before, err := s.Create(t.Context(), "list/2", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"list/10", "list/3", "list/1", "lisu", "lis"} {
		put(t, s, name, []byte(name))
	}
	page, err := s.List(t.Context(), "list/", "", "")
	if err != nil || page.At.IsZero() || page.Next != "" {
		t.Fatalf("List = %+v, %v; want one page, with the store's time", page, err)
	}
	if got := names(page); !slices.Equal(got, []string{"list/1", "list/10", "list/2", "list/3"}) {
		t.Errorf("List = %q", got)
	}
	for _, o := range page.Objects {
		if o.Modified.Before(before.Add(-2*time.Second)) || o.Modified.After(page.At.Add(2*time.Second)) {
			t.Errorf("%s was modified at %v, which is not between %v and %v", o.Name, o.Modified, before, page.At)
		}
	}
	page, err = s.List(t.Context(), "list/", "list/10", "")
	if err != nil || !slices.Equal(names(page), []string{"list/2", "list/3"}) && len(page.Objects) != 4 {
		t.Errorf("List after list/10 = %q, %v; want the names after it, or all", names(page), err)
	}
	if page, err := s.List(t.Context(), "nothing/", "", ""); err != nil || len(page.Objects) > 0 || page.Next != "" || page.At.IsZero() {
		t.Errorf("List of nothing = %+v, %v", page, err)
	}
}

// checkListGoesOn: more objects than a page holds are listed on further pages.
func checkListGoesOn(t *testing.T, s bucket.Store) {
	const n = bucket.MaxPage + 5
	var all sync.WaitGroup
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	for range 16 {
		all.Go(func() {
			for i := range next {
				if err := s.Put(context.Background(), fmt.Sprintf("many/%04d", i), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var got []string
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		page, err := s.List(t.Context(), "many/", "", token)
		if err != nil || len(page.Objects) > bucket.MaxPage || pages > 3 {
			t.Fatalf("page %d: %d objects, %v", pages, len(page.Objects), err)
		}
		got, token = append(got, names(page)...), page.Next
	}
	if len(got) != n || !slices.IsSorted(got) || len(slices.Compact(got)) != n {
		t.Errorf("the pages list %d names, want %d, sorted, each once", len(got), n)
	}
}

// checkCancelled: a request whose context ended says so.
func checkCancelled(t *testing.T, s bucket.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Create(ctx, "object", []byte("x"))
	if !errors.Is(err, context.Canceled) || bucket.Passing(err) {
		t.Errorf("Create = %v, want the end of its context", err)
	}
}

func put(t *testing.T, s bucket.Store, name string, body []byte) {
	t.Helper()
	if err := s.Put(t.Context(), name, body); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, s bucket.Store, name, body string) {
	t.Helper()
	got, _, err := s.Get(t.Context(), name, 2<<20)
	if err != nil || string(got) != body {
		t.Errorf("%s holds %d bytes, %v; want %d", name, len(got), err, len(body))
	}
	if held, err := s.Exists(t.Context(), name); !held || err != nil {
		t.Errorf("Exists(%s) = %v, %v", name, held, err)
	}
}

func names(page bucket.Page) (names []string) {
	for _, o := range page.Objects {
		names = append(names, o.Name)
	}
	return names
}
