package replica_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// TestNothingShownIsTakenBack: once anybody has been shown a revision, no way of
// looking at this replica leads to an older one.
func TestNothingShownIsTakenBack(t *testing.T) {
	r := run(t, memlog.New(memlog.Options{}).Open(), nil)
	var shown atomic.Int64
	show := func(rev mvcc.Revision) {
		for {
			old := shown.Load()
			if int64(rev) <= old || shown.CompareAndSwap(old, int64(rev)) {
				return
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var looking, writing sync.WaitGroup
	look := func(way string, how func() (mvcc.Revision, error)) {
		looking.Go(func() {
			for ctx.Err() == nil {
				before := shown.Load()
				rev, err := how()
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("%s: %v", way, err)
					}
					return
				}
				if int64(rev) < before {
					t.Errorf("%s: revision %d, after %d was shown", way, rev, before)
					return
				}
				show(rev)
			}
		})
	}
	for i := range 4 {
		feed := r.NewFeed()
		feed.Add(mvcc.KeyRange{Key: "k", End: "l"})
		look(fmt.Sprintf("watch %d", i), func() (mvcc.Revision, error) {
			select {
			case <-feed.Wake():
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			v, _, last := feed.Take()
			if last > v.Revision() {
				return 0, fmt.Errorf("change %d is not in the view of %d", last, v.Revision())
			}
			return v.Revision(), nil
		})
	}
	look("view", func() (mvcc.Revision, error) { return r.View().Revision(), nil })
	look("a new watch", func() (mvcc.Revision, error) {
		v, _, _ := r.NewFeed().Take()
		return v.Revision(), nil
	})
	look("linearizable read", func() (mvcc.Revision, error) {
		v, err := r.Linearizable(ctx)
		if err != nil {
			return 0, err
		}
		return v.Revision(), nil
	})
	look("transaction that only reads", func() (mvcc.Revision, error) {
		res, err := r.Propose(ctx, &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpRange, Range: mvcc.KeyRange{Key: "k"}}}})
		return res.Revision, err
	})
	look("compaction", func() (mvcc.Revision, error) {
		res, err := r.Propose(ctx, &mvcc.Request{Kind: mvcc.Compact, Revision: r.View().Revision()})
		if res.Err != nil && err == nil && res.Revision == 0 {
			err = res.Err
		}
		return res.Revision, err
	})
	for range 4 {
		writing.Go(func() {
			for i := range 400 {
				res := propose(t, r, put(fmt.Sprintf("k%d", i%7), "v"))
				show(res.Revision)
			}
		})
	}
	writing.Wait()
	cancel()
	looking.Wait()
}

// late is a journal whose Reads, once held up, answer what was there when they began.
type late struct {
	journal.Store
	hold  atomic.Pointer[chan struct{}] // a Read answers once it is closed; nil: at once
	began chan struct{}                 // receives when a Read that is held up has been carried out
}

func (l *late) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	hold := l.hold.Load()
	recs, err := l.Store.Read(ctx, from, limit)
	if hold != nil {
		select {
		case l.began <- struct{}{}:
		default:
		}
		select {
		case <-*hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return recs, err
}

// TestReadAnswersNoLaterQuestion: a linearizable read is not answered by a Read of the
// journal that was under way when it was asked.
func TestReadAnswersNoLaterQuestion(t *testing.T) {
	store := memlog.New(memlog.Options{})
	reads := &late{Store: store.Open(), began: make(chan struct{}, 1)}
	writer, reader := run(t, store.Open(), nil), run(t, reads, nil)
	hold := make(chan struct{})
	reads.hold.Store(&hold)
	<-reads.began // a Read is under way, and has found nothing
	want := propose(t, writer, put("k", "v")).Revision
	type answer struct {
		v   *mvcc.View
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := reader.Linearizable(t.Context())
		answers <- answer{v, err}
	}()
	time.Sleep(20 * time.Millisecond) // the question is asked before the Read ends
	reads.hold.Store(nil)
	close(hold)
	a := <-answers
	if a.err != nil {
		t.Fatal(a.err)
	}
	if got := a.v.Revision(); got < want {
		t.Errorf("the answer is of revision %d; want %d, which was acknowledged before the question", got, want)
	}
}
