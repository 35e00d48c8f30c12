package sqllog

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// statements counts those that are sent to the database.
type statements struct{ inserts, selects atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(data.SQL, "INSERT") {
		s.inserts.Add(1)
	} else {
		s.selects.Add(1)
	}
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestAppendIsOneStatement: a process that fills slots one after the other, or several at
// once, does not ask the database which slots are held: it would wait for that each time.
func TestAppendIsOneStatement(t *testing.T) {
	const n, inFlight = 10 * depth, 4
	for name, fill := range map[string]func(appendTo func(journal.Slot)){
		"one after the other": func(appendTo func(journal.Slot)) {
			for slot := range journal.Slot(n) {
				appendTo(slot + 1)
			}
		},
		"several at once": func(appendTo func(journal.Slot)) {
			for from := journal.Slot(1); from < n; from += inFlight {
				var all sync.WaitGroup
				for slot := from; slot < from+inFlight; slot++ {
					all.Go(func() { appendTo(slot) })
				}
				all.Wait()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fresh(t)
			var sent statements
			cfg.Pool.ConnConfig.Tracer = &sent
			l := open(t, cfg)
			sent.inserts.Store(0)
			sent.selects.Store(0)
			fill(func(slot journal.Slot) {
				if err := l.Append(t.Context(), slot, []byte("x")); err != nil {
					t.Error(err)
				}
			})
			if inserts, selects := sent.inserts.Load(), sent.selects.Load(); inserts != n || selects != 0 {
				t.Errorf("%d records took %d INSERTs and %d other statements", n, inserts, selects)
			}
		})
	}
}

// TestTail: what the tail knows is true, and is all that follows from what it was told.
func TestTail(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var got tail
		held := map[journal.Slot]bool{}
		want := journal.Slot(0)
		for range 300 {
			slot := want + 1 + journal.Slot(random.Uint64N(depth))
			if random.IntN(20) == 0 {
				got.raise(slot)
				for below := range slot + 1 {
					held[below] = true
				}
			} else {
				got.note(slot)
				held[slot] = true
			}
			for held[want+1] {
				want++
			}
			if !got.covers(want) || got.covers(want+1) || len(got.above) >= depth {
				t.Fatalf("seed %d: the tail knows slots up to %d and %d above, want up to %d", seed, got.upTo, len(got.above), want)
			}
		}
	}
}
