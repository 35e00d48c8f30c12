package replica_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/faultlog"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica"
)

var seedFlag = flag.Uint64("seed", 0, "replay this seed of the histories; 0 draws one")

// call is an operation on one key: a read, or a write of value if the key is
// still at revision from (0: absent; -1: whatever it is).
type call struct {
	key   string
	write bool
	from  mvcc.Revision
	value string
}

// answer is what the caller learnt. unknown: nothing.
type answer struct {
	unknown bool
	ok      bool // the write was carried out
	mod     mvcc.Revision
	value   string
}

// cell is the state of one key in the sequential model.
type cell struct {
	mod   mvcc.Revision
	value string
}

// model says that every key is a register with compare-and-swap on its
// revision; what a write's revision will be, only its answer tells.
var model = porcupine.NondeterministicModel{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range h {
			k := op.Input.(call).key
			byKey[k] = append(byKey[k], op)
		}
		var parts [][]porcupine.Operation
		for _, p := range byKey {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() []any { return []any{cell{}} },
	Step: func(state, input, output any) []any {
		s, in, out := state.(cell), input.(call), output.(answer)
		matches := s.mod < 0 || in.from == -1 || s.mod == in.from
		switch {
		case !in.write && out.unknown:
			return []any{s}
		case !in.write:
			if s.value == out.value && (s.mod < 0 || s.mod == out.mod) {
				return []any{cell{out.mod, out.value}}
			}
			return nil
		case out.unknown:
			if matches {
				return []any{s, cell{-1, in.value}} // it may have happened, at a revision nobody was told
			}
			return []any{s}
		case out.ok:
			if matches && (s.mod < 0 || out.mod > s.mod) {
				return []any{cell{out.mod, in.value}}
			}
			return nil
		default: // refused, with what was there instead
			if in.from != out.mod && s.value == out.value && (s.mod < 0 || s.mod == out.mod) {
				return []any{cell{out.mod, out.value}}
			}
			return nil
		}
	},
	Equal: func(a, b any) bool { return a.(cell) == b.(cell) },
}

func perform(ctx context.Context, r *replica.Replica, c call) answer {
	if !c.write {
		v, err := r.Linearizable(ctx)
		if err != nil {
			return answer{unknown: true}
		}
		return read(v.Get(c.key))
	}
	req := put(c.key, c.value)
	if c.from >= 0 {
		req = swap(c.key, c.from, c.value)
	}
	res, err := r.Propose(ctx, req)
	switch {
	case errors.Is(err, replica.ErrUnknown):
		return answer{unknown: true}
	case err != nil: // it never happens: as if it had not been called
		return answer{unknown: true}
	case res.Succeeded:
		return answer{ok: true, mod: res.Revision, value: c.value}
	default:
		var kv *mvcc.KV
		if kvs := res.Ops[0].Read.KVs; len(kvs) == 1 {
			kv = kvs[0]
		}
		return read(kv)
	}
}

func read(kv *mvcc.KV) answer {
	if kv == nil {
		return answer{}
	}
	return answer{mod: kv.Mod, value: string(kv.Value)}
}

// TestHistories runs clients on several replicas of one journal that loses
// answers, fails, stalls and lets writes land late, and asks porcupine whether
// what they saw is linearizable; then whether all replicas came out the same.
func TestHistories(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	for name, depth := range map[string]int{"one at a time": 1, "pipelined": 8, "taking turns": 64} {
		t.Run(name, func(t *testing.T) {
			t.Logf("replay with -run '%s' -seed=%d", t.Name(), seed)
			testHistory(t, seed, depth)
		})
	}
}

func testHistory(t *testing.T, seed uint64, depth int) {
	const replicas, clients, calls, keys = 3, 4, 60, 3
	store := memlog.New(memlog.Options{Depth: depth})
	var rs []*replica.Replica
	var faults []*faultlog.Store
	for i := range replicas {
		f, err := faultlog.New(store.Open(), faultlog.Config{
			Seed: seed + uint64(i), Fail: 0.05, FailApplied: 0.10, Late: 0.10, FalseTaken: 0.05, MaxLate: 20 * time.Millisecond,
			Delay: 0.3, MaxDelay: 3 * time.Millisecond, ReadFail: 0.05,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		faults = append(faults, f)
		rs = append(rs, run(t, f, func(c *replica.Config) { c.Attempt = 20 * time.Millisecond }))
	}

	var mu sync.Mutex
	var history []porcupine.Operation
	begin := time.Now()
	var wg sync.WaitGroup
	for c := range replicas * clients {
		wg.Go(func() {
			r, rng := rs[c%replicas], rand.New(rand.NewPCG(seed, uint64(c)))
			last := map[string]mvcc.Revision{}
			for i := range calls {
				in := call{key: fmt.Sprint("k", rng.IntN(keys)), write: rng.IntN(3) > 0, from: -1, value: fmt.Sprintf("%d.%d", c, i)}
				if rng.IntN(4) > 0 {
					in.from = last[in.key]
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(5+rng.IntN(200))*time.Millisecond)
				from := time.Since(begin)
				out := perform(ctx, r, in)
				to := time.Since(begin)
				cancel()
				if out.unknown {
					to = 1 << 62 // it may happen any time from now on
				} else {
					last[in.key] = out.mod
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: c, Input: in, Output: out, Call: int64(from), Return: int64(to)})
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	known := 0
	for _, op := range history {
		if !op.Output.(answer).unknown {
			known++
		}
	}
	if known < len(history)/3 {
		t.Errorf("only %d of %d calls had an outcome: too few to mean anything", known, len(history))
	}
	res, info := porcupine.CheckOperationsVerbose(model.ToModel(), history, time.Minute)
	if res == porcupine.Illegal {
		path := t.ArtifactDir() + "/history.html"
		t.Errorf("history is not linearizable: see %s (%v)", path, porcupine.VisualizePath(model.ToModel(), info, path))
	} else if res == porcupine.Unknown {
		t.Log("porcupine gave up; the history is neither proved nor refuted")
	}
	applied, late := 0, 0
	for _, f := range faults {
		if err := f.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		applied, late = applied+f.Counts().FailApplied, late+f.Counts().Late
	}
	if applied == 0 || late == 0 {
		t.Errorf("met too few faults to mean anything: %d answers lost, %d writes late", applied, late)
	}
	sameState(t, rs)
	if depth > 8 {
		if n := asked(t, store.Open()); n == 0 {
			t.Error("nobody asked for turns: the history says nothing of them")
		}
	}
}

// asked is how many records of a journal ask for turns.
func asked(t *testing.T, j journal.Journal) (n int) {
	t.Helper()
	recs, err := j.Read(t.Context(), 1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range recs {
		if h, _, err := record.Parse(rec); err == nil && h.Turns > 0 {
			n++
		}
	}
	t.Logf("%d of %d records ask for turns", n, len(recs))
	return n
}

// sameState brings every replica to one slot and holds their states against
// each other. Batches whose callers gave up may still land meanwhile.
func sameState(t *testing.T, rs []*replica.Replica) {
	t.Helper()
	for range 1000 {
		var at []journal.Slot
		var hashes [][32]byte
		for _, r := range rs {
			if _, err := r.Linearizable(t.Context()); err != nil {
				t.Fatal(err)
			}
			slot, hash, err := r.Hash(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			at, hashes = append(at, slot), append(hashes, hash)
		}
		if slices.Min(at) != slices.Max(at) {
			continue
		}
		for i, h := range hashes {
			if h != hashes[0] {
				t.Errorf("at slot %d replica %d has state %x, replica 0 %x", at[0], i, h, hashes[0])
			}
		}
		return
	}
	t.Error("replicas never came to one slot")
}
