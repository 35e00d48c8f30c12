package replica_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// sizes are what a bucket holds at a moment.
type sizes struct{ slots, others, bytes int }

func (b *memoryBucket) sizes() (s sizes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, o := range b.objects {
		if strings.HasPrefix(name, "journal/") {
			s.slots++
		} else {
			s.others++
		}
		s.bytes += len(o.data)
	}
	return s
}

var growthFor = flag.Duration("growth", 2*time.Hour, "how long TestGrowth writes, of a clock that does not wait")

// TestGrowth: a journal that is written to all the time, of which a server of the owner
// deletes what snapshots stand for, grows for as long as deleted slots must stay readable,
// and no longer. What it holds by then, what a month costs, and what a start takes, does not
// depend on how old the journal is.
func TestGrowth(t *testing.T) {
	const (
		r       = 20 * time.Millisecond
		pause   = 100 * time.Millisecond // ten writes a second
		keys    = 500
		grows   = 40 * time.Minute // until slots are deleted as fast as they are written
		compact = 5 * time.Minute  // as API servers do
	)
	end := *growthFor
	synctest.Test(t, func(t *testing.T) {
		objects := newMemoryBucket()
		serve := func() (*replica.Replica, func()) {
			l, err := objectlog.Open(t.Context(), farBucket{objects, r}, objectlog.Options{})
			if err != nil {
				t.Fatal(err)
			}
			n := replica.New(replica.Config{
				Store: l, Notifier: notify.NewPolling(time.Minute, time.Minute), Logger: slog.New(slog.DiscardHandler), Trim: true,
				Snapshots: snapshot.Policy{EveryBytes: 16 << 20, RecordWeight: 16 << 10}, CompressFrom: 1 << 10,
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- n.Run(ctx) }()
			<-n.Ready()
			return n, func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		writer, stop := serve()
		start, compacted := time.Now(), time.Now()
		var most sizes // that it held while it grew
		var before requests
		value := strings.Repeat("v", 1000)
		for n := 0; time.Since(start) < end; n++ {
			began := time.Now()
			rev := propose(t, writer, put(fmt.Sprint(n%keys), fmt.Sprint(value, n))).Revision
			if time.Since(compacted) >= compact {
				compacted = time.Now()
				propose(t, writer, &mvcc.Request{Kind: mvcc.Compact, Revision: rev - 1})
			}
			if n%1000 == 0 {
				now := objects.sizes()
				if time.Since(start) < grows {
					most = sizes{max(most.slots, now.slots), max(most.others, now.others), max(most.bytes, now.bytes)}
					before = objects.asked()
				} else if now.slots > most.slots*5/4 || now.others > most.others*5/4 || now.bytes > most.bytes*5/4 {
					t.Fatalf("after %v the bucket holds %+v, and at most %+v in the first %v", time.Since(start), now, most, grows)
				}
			}
			time.Sleep(pause - time.Since(began))
		}
		stop()
		cost, hours := objects.asked().since(before), (end - grows).Hours()
		t.Logf("the bucket held %+v at most in the first %v, and holds %+v after %v", most, grows, objects.sizes(), end)
		t.Logf("in a month at this pace %.1f million PUTs and LISTs, %.1f million GETs and %.1f million DELETEs: $%.0f",
			float64(cost.puts)*730/hours/1e6, float64(cost.gets)*730/hours/1e6, float64(cost.deletes)*730/hours/1e6, cost.dollars()*730/hours)
		asked, began := objects.asked(), time.Now()
		_, stop = serve()
		took := objects.asked().since(asked)
		t.Logf("a server starts with %d GETs and %d LISTs and PUTs in %.0f round trips", took.gets, took.puts, float64(time.Since(began))/float64(r))
		if took.gets > 4000 {
			t.Errorf("a server starts with %d GETs", took.gets)
		}
		stop()
	})
}

// requests are how many of each price a bucket was sent.
type requests struct{ puts, gets, deletes int64 } // puts: LISTs, too

func (r requests) since(before requests) requests {
	return requests{r.puts - before.puts, r.gets - before.gets, r.deletes - before.deletes}
}

// dollars is what requests cost at AWS, in us-east-1.
func (r requests) dollars() float64 { return float64(r.puts)*5e-6 + float64(r.gets)*0.4e-6 }

func (b *memoryBucket) asked() requests {
	return requests{b.puts.Load(), b.gets.Load(), b.deletes.Load()}
}

// counts are of the requests that a bucket was sent.
type counts struct{ puts, gets, deletes atomic.Int64 }
