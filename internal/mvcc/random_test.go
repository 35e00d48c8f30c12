package mvcc

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc/keys"
)

var (
	seeds   = flag.Uint64("seeds", 6, "how many seeds the random tests run")
	oneSeed = flag.Uint64("seed", 0, "run the random tests with this seed alone")
	batches = flag.Int("batches", 250, "batches a seed")
)

// eachSeed runs f as a subtest named by its seed: `go test -run
// 'TestModel/seed=7$'`, or -seed=7 for one beyond -seeds, runs it again.
func eachSeed(t *testing.T, f func(t *testing.T, seed uint64)) {
	first, last := uint64(1), *seeds
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			f(t, seed)
		})
	}
}

// gen draws requests: few keys, so that they meet, and every odd case.
type gen struct {
	*rand.Rand
	keys int
	at   journal.Slot // of the last batch
}

func newGen(seed uint64) *gen {
	r := rand.New(rand.NewPCG(seed, 0))
	return &gen{Rand: r, keys: []int{3, 30, 300}[r.IntN(3)]}
}

// one says yes once in n times.
func (g *gen) one(n int) bool { return g.IntN(n) == 0 }

func (g *gen) key() string {
	if g.one(200) {
		return ""
	}
	n := g.IntN(g.keys)
	return string([]string{"/a/", "/b/", "c"}[n%3]) + fmt.Sprint(n)
}

func (g *gen) keyRange() KeyRange {
	r := KeyRange{Key: g.key()}
	switch g.IntN(6) {
	case 0:
		r.End = g.key() // perhaps below Key
	case 1:
		r.End = FromKey
	case 2:
		r = KeyRange{Key: "/a/", End: "/a0"}
	case 3:
		r = KeyRange{Key: "\x00", End: FromKey}
	}
	return r
}

// revision draws one around what exists.
func (g *gen) revision(current, compact Revision) Revision {
	switch g.IntN(10) {
	case 0:
		return current
	case 1:
		return current + 1
	case 2:
		return compact
	case 3:
		return compact - 1
	case 4:
		return -Revision(g.IntN(3))
	}
	return Revision(g.Int64N(int64(current) + 1))
}

func (g *gen) options(current, compact Revision) ReadOptions {
	var o ReadOptions
	if g.one(2) {
		o.Revision = g.revision(current, compact)
	}
	if g.one(2) {
		o.Limit = g.Int64N(8) - 1
	}
	o.CountOnly, o.KeysOnly = g.one(8), g.one(8)
	if g.one(4) {
		o.Order, o.Target = SortOrder(g.IntN(3)), SortTarget(g.IntN(5))
	}
	if g.one(6) {
		for _, p := range []*Revision{&o.MinMod, &o.MaxMod, &o.MinCreate, &o.MaxCreate} {
			if g.one(2) {
				*p = g.revision(current, compact)
			}
		}
	}
	return o
}

func (g *gen) op(current, compact Revision) Op {
	switch g.IntN(8) {
	case 0:
		return Op{Kind: OpRange, Range: g.keyRange(), Read: g.options(current, compact)}
	case 1:
		return Op{Kind: OpDelete, Range: KeyRange{Key: g.key()}, PrevKV: g.one(2)}
	case 2:
		return Op{Kind: OpDelete, Range: g.keyRange(), PrevKV: g.one(2)}
	}
	op := Op{Kind: OpPut, Range: KeyRange{Key: g.key()}, PrevKV: g.one(3), IgnoreValue: g.one(12), IgnoreLease: g.one(12)}
	if n := g.IntN(4); n > 0 && !op.IgnoreValue {
		op.Value = []byte(fmt.Sprint(g.IntN(50)))
	}
	if g.one(3) && !op.IgnoreLease {
		op.Lease = LeaseID(g.IntN(5))
	}
	return op
}

func (g *gen) ops(current, compact Revision) []Op {
	n := []int{0, 1, 1, 1, 1, 2, 3, 6}[g.IntN(8)]
	var ops []Op
	for range n {
		ops = append(ops, g.op(current, compact))
	}
	return ops
}

func (g *gen) compare(current, compact Revision) Compare {
	c := Compare{Range: KeyRange{Key: g.key()}, Target: CompareTarget(g.IntN(5)), Result: CompareResult(g.IntN(4))}
	if g.one(3) {
		c.Range = g.keyRange()
	}
	switch c.Target {
	case TargetValue:
		c.Value = []byte(fmt.Sprint(g.IntN(50)))
	case TargetVersion, TargetLease:
		c.Int = g.Int64N(4)
	default:
		c.Int = int64(g.revision(current, compact))
	}
	return c
}

func (g *gen) request(current, compact Revision) Request {
	switch g.IntN(20) {
	case 0:
		if g.one(3) {
			return Request{Kind: Compact, Revision: g.revision(current, compact)}
		}
		return Request{Kind: Compact, Revision: compact + Revision(g.Int64N(int64(current-compact)/2+1))}
	case 1:
		return Request{Kind: LeaseGrant, Lease: LeaseID(g.IntN(5)), TTL: []int64{60, 5, 0, -1, MaxLeaseTTL, MaxLeaseTTL + 1}[g.IntN(6)]}
	case 2:
		return Request{Kind: LeaseRevoke, Lease: LeaseID(g.IntN(6))}
	case 3:
		return Request{Kind: LeaseRenew, Lease: LeaseID(g.IntN(5))}
	case 4:
		return Request{Kind: LeaseExpire, Lease: LeaseID(g.IntN(5)), Since: g.at - journal.Slot(g.IntN(4))}
	}
	r := Request{Kind: Txn, Then: g.ops(current, compact)}
	for range []int{0, 0, 1, 2}[g.IntN(4)] {
		r.Compares = append(r.Compares, g.compare(current, compact))
		r.Else = g.ops(current, compact)
	}
	return r
}

// batch draws the next batch of one of three writers; now and then it is one
// that was sent before, one out of order, or one far too old.
func (g *gen) batch(current, compact Revision, sent map[WriterID]BatchNumber) *Batch {
	g.at++
	b := &Batch{Writer: WriterID(1 + g.IntN(3))}
	last := sent[b.Writer]
	switch g.IntN(16) {
	case 0:
		b.Number = BatchNumber(g.Uint64N(uint64(last) + 1))
	case 1:
		b.Number = last + BatchNumber(g.IntN(8))
	case 2:
		b.Number = last + BatchNumber(g.IntN(2*BatchWindow))
	default:
		b.Number = last + 1
	}
	sent[b.Writer] = max(last, b.Number)
	for range 1 + g.IntN(6) {
		b.Requests = append(b.Requests, g.request(current, compact))
	}
	return b
}

func parts(t testing.TB, s *State) [][]byte {
	t.Helper()
	out, err := partsOf(s.Freeze())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func partsOf(f *Frozen) (out [][]byte, err error) {
	err = f.Parts(func(p []byte) error {
		out = append(out, bytes.Clone(p))
		return nil
	})
	return out, err
}

func thaw(parts [][]byte) (*State, error) {
	var decoded []Part
	for _, b := range parts[1:] {
		p, err := ParsePart(b)
		if err != nil {
			return nil, err
		}
		decoded = append(decoded, p)
	}
	return Thaw(parts[0], decoded)
}

func mustThaw(t testing.TB, parts [][]byte) *State {
	t.Helper()
	s, err := thaw(parts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sameParts(t testing.TB, what string, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d parts, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("%s: part %d differs:\n got %x\nwant %x", what, i, got[i], want[i])
		}
	}
}

var sameErrors = cmp.Options{cmpopts.EquateErrors(), cmpopts.EquateEmpty()}

func mustEqual[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got, sameErrors); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// encoded sends requests through their encoding and back.
func encoded(t testing.TB, requests []Request) []Request {
	t.Helper()
	pointers := make([]*Request, len(requests))
	for i := range requests {
		pointers[i] = &requests[i]
	}
	b := AppendRequests(nil, pointers)
	out, err := ParseRequests(b)
	if err != nil {
		t.Fatalf("parse what was appended: %v", err)
	}
	return out
}

// TestModel drives four states in step with the model: one that is never
// pruned, one pruned at random moments by random amounts, one fed through the
// encoded form without answers, and one that is thawed from a snapshot of another
// now and then. All must answer as the model does, and be equal byte by byte.
func TestModel(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		g, m := newGen(seed), newModel()
		whole, pruned, decoded, thawed := New(), New(), New(), New()
		sent := map[WriterID]BatchNumber{}
		var views []*View
		for slot := journal.Slot(1); slot <= journal.Slot(*batches); slot++ {
			if g.one(20) {
				for _, s := range []*State{whole, pruned, decoded, thawed} {
					s.Skip(slot)
				}
				m.slot++
				g.at++
				continue
			}
			b := g.batch(m.rev(), m.compact, sent)
			before := m.rev()
			want := m.apply(b)
			mustEqual(t, fmt.Sprintf("slot %d", slot), plainResults(whole.Apply(slot, b, true)), want)
			mustEqual(t, fmt.Sprintf("slot %d, pruned", slot), plainResults(pruned.Apply(slot, b, true)), want)
			mustEqual(t, fmt.Sprintf("slot %d, thawed", slot), plainResults(thawed.Apply(slot, b, true)), want)
			decoded.Apply(slot, &Batch{From: b.From, Writer: b.Writer, Number: b.Number, Requests: encoded(t, b.Requests)}, false)
			if since, err := m.changes(before+1, m.rev()); err == nil {
				mustEqual(t, "changes of the batch", plainChanges(pruned.ChangesSince(before)), since)
			}
			for range g.IntN(3) {
				pruned.Prune(g.IntN(20))
			}
			if g.one(8) {
				views = append(views, pruned.View())
			}
			mustAgree(t, g, m, pruned.View())
			if g.one(10) {
				mustAgree(t, g, m, whole.View())
				mustAgree(t, g, m, thawed.View())
				mustHold(t, m, whole)
				mustHold(t, m, thawed)
				want := parts(t, whole)
				sameParts(t, "pruned", parts(t, pruned), want)
				sameParts(t, "decoded", parts(t, decoded), want)
				sameParts(t, "thawed", parts(t, thawed), want)
				thawed = mustThaw(t, want)
				sameParts(t, "thawed again", parts(t, thawed), want)
			}
			for range 3 {
				if len(views) > 0 {
					mustStayValid(t, g, m, views[g.IntN(len(views))])
				}
			}
		}
		for _, v := range []*View{whole.View(), pruned.View(), decoded.View(), thawed.View()} {
			mustMatch(t, m, v)
		}
		for pruned.Prune(7) {
		}
		mustMatch(t, m, pruned.View())
		mustBeLean(t, pruned)
	})
}

// mustAgree asks v, a view of the newest state, a few random questions.
func mustAgree(t *testing.T, g *gen, m *model, v *View) {
	t.Helper()
	mustEqual(t, "revision", v.Revision(), m.rev())
	mustEqual(t, "compacted", v.Compacted(), m.compact)
	for range 4 {
		r, o := g.keyRange(), g.options(m.rev(), m.compact)
		var want plainRead
		err := m.readable(o.Revision)
		if err == nil {
			from := m.now()
			if o.Revision > 0 {
				from = m.at[o.Revision]
			}
			want = read(from, r, o)
		}
		got, gotErr := v.Read(r, o)
		mustEqual(t, fmt.Sprintf("error of read %q %+v", r, o), gotErr, err)
		mustEqual(t, fmt.Sprintf("read %q %+v", r, o), plainReadOf(got), want)
	}
	k := g.key()
	mustEqual(t, "get "+k, plainKV(v.Get(k)), m.now()[k])
	c := g.compare(m.rev(), m.compact)
	mustEqual(t, fmt.Sprintf("compare %+v", c), v.Holds([]Compare{c}), m.compare(c))
	from, to := g.revision(m.rev(), m.compact), g.revision(m.rev(), m.compact)
	want, err := m.changes(from, to)
	got, gotErr := v.Changes(from, to)
	mustEqual(t, fmt.Sprintf("error of changes %d to %d", from, to), gotErr, err)
	mustEqual(t, fmt.Sprintf("changes %d to %d", from, to), plainChanges(got), want)
	req := g.request(m.rev(), m.compact)
	if res, ok := v.Answer(&req); ok {
		mustEqual(t, fmt.Sprintf("answer %+v", req), plainResults([]Result{res})[0], m.answer(&req))
	}
}

// answer is the outcome of a request that changes nothing.
func (m *model) answer(r *Request) plainResult {
	before := len(m.at)
	res := m.request(r)
	res.Revision = m.rev()
	if len(m.at) != before {
		panic("the request changes something")
	}
	return res
}

// mustMatch reads everything there is at every revision that can be read.
func mustMatch(t *testing.T, m *model, v *View) {
	t.Helper()
	all := KeyRange{End: FromKey}
	for rev := max(m.compact, 1); rev <= m.rev(); rev++ {
		got, err := v.Read(all, ReadOptions{Revision: rev})
		if err != nil {
			t.Fatalf("read all at %d: %v", rev, err)
		}
		mustEqual(t, fmt.Sprintf("everything at %d", rev), plainReadOf(got), read(m.at[rev], all, ReadOptions{}))
	}
	want, _ := m.changes(m.compact, m.rev())
	got, err := v.Changes(m.compact, m.rev())
	if err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "all changes", plainChanges(got), want)
}

// mustHold compares the leases with the model's.
func mustHold(t *testing.T, m *model, s *State) {
	t.Helper()
	got := map[LeaseID]plainLease{}
	s.Leases(func(id LeaseID, ttl int64, since journal.Slot) { got[id] = plainLease{ttl, since} })
	if d := cmp.Diff(m.leases, got, cmp.AllowUnexported(plainLease{})); d != "" {
		t.Fatalf("leases (-want +got):\n%s", d)
	}
	size := int64(0)
	for _, kv := range m.now() {
		size += int64(len(kv.Key) + len(kv.Value))
	}
	mustEqual(t, "bytes", s.Bytes(), size)
	for id := range m.leases {
		var want []string
		for _, kv := range inRange(m.now(), KeyRange{End: FromKey}) {
			if kv.Lease == id {
				want = append(want, kv.Key)
			}
		}
		_, _, keys, _ := s.Lease(id)
		mustEqual(t, fmt.Sprintf("keys of lease %d", id), keys, want)
	}
}

// mustStayValid reads an old view: at its own revision it answers for good;
// below, it answers rightly or says that it cannot.
func mustStayValid(t *testing.T, g *gen, m *model, v *View) {
	t.Helper()
	r, o := g.keyRange(), g.options(v.rev, v.compact)
	if o.Revision > v.rev {
		o.Revision = v.rev
	}
	got, err := v.Read(r, o)
	from := m.at[v.rev]
	switch {
	case o.Revision <= 0 || o.Revision == v.rev:
		if err != nil {
			t.Fatalf("read of an old view at its own revision: %v", err)
		}
	case errors.Is(err, ErrCompacted):
		if o.Revision >= m.compact {
			t.Fatalf("read of an old view at %d, compacted %d: %v", o.Revision, m.compact, err)
		}
		return
	case err != nil:
		t.Fatal(err)
	default:
		from = m.at[o.Revision]
	}
	mustEqual(t, fmt.Sprintf("old view of %d: read %q %+v", v.rev, r, o), plainReadOf(got), read(from, r, o))
}

// mustBeLean finds versions that nothing can read any more, after Prune said
// that there is nothing left to do.
func mustBeLean(t *testing.T, s *State) {
	t.Helper()
	s.keys.Root().Ascend(KeyRange{End: FromKey}, func(head *KV) bool {
		if !head.Live() && head.Mod < s.history.compacted {
			t.Errorf("the tombstone of %q at %d is left", head.Key, head.Mod)
		}
		for kv := head; kv != nil; kv = kv.Prev() {
			if prev := kv.Prev(); prev != nil && kv.Mod < s.history.compacted {
				t.Errorf("version %d of %q is left, compacted at %d", prev.Mod, kv.Key, s.history.compacted)
			}
		}
		return true
	})
}

// TestConcurrentReaders runs readers and snapshots against a writer that
// compacts and prunes. What they should see is known from a first run alone.
func TestConcurrentReaders(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		g, m := newGen(seed), newModel()
		sent := map[WriterID]BatchNumber{}
		var script []*Batch
		var hashes [][32]byte // of the state after each batch
		first := New()
		for i := range *batches {
			b := g.batch(m.rev(), m.compact, sent)
			script = append(script, b)
			m.apply(b)
			first.Apply(journal.Slot(i+1), b, false)
			hashes = append(hashes, hashOf(parts(t, first)))
		}

		s := New()
		var newest atomic.Pointer[View]
		newest.Store(s.View())
		frozen := make(chan *Frozen, 1)
		var readers sync.WaitGroup
		for i := range 3 {
			readers.Go(func() {
				g := newGen(seed + 1000*uint64(i+1))
				var kept []*View
				for {
					v := newest.Load()
					if v.Slot() == journal.Slot(len(script)) {
						return
					}
					kept = append(kept, v)
					mustStayValidNow(t, g, m, v)
					mustStayValidNow(t, g, m, kept[g.IntN(len(kept))])
				}
			})
		}
		readers.Go(func() {
			for f := range frozen {
				p, err := partsOf(f)
				switch {
				case errors.Is(err, ErrCompacted): // pruned meanwhile: taken again later
				case err != nil:
					t.Error(err)
				case hashOf(p) != hashes[f.View.Slot()-1]:
					t.Errorf("snapshot at slot %d differs", f.View.Slot())
				}
			}
		})
		for i, b := range script {
			s.Apply(journal.Slot(i+1), b, false)
			newest.Store(s.View())
			select {
			case frozen <- s.Freeze():
			default:
			}
			s.Prune(5)
		}
		close(frozen)
		readers.Wait()
		if got := hashOf(parts(t, s)); got != hashes[len(hashes)-1] {
			t.Error("the last state differs")
		}
	})
}

// mustStayValidNow is mustStayValid while compactions may run ahead: an
// ErrCompacted is always an answer to a read below the view's own revision.
func mustStayValidNow(t *testing.T, g *gen, m *model, v *View) {
	r, o := g.keyRange(), g.options(v.rev, v.compact)
	o.Revision = min(o.Revision, v.rev)
	got, err := v.Read(r, o)
	from := m.at[v.rev]
	if o.Revision > 0 && o.Revision < v.rev {
		if errors.Is(err, ErrCompacted) {
			return
		}
		from = m.at[o.Revision]
	}
	if err != nil {
		t.Errorf("view of %d: read %q %+v: %v", v.rev, r, o, err)
		return
	}
	if d := cmp.Diff(read(from, r, o), plainReadOf(got), sameErrors); d != "" {
		t.Errorf("view of %d: read %q %+v (-want +got):\n%s", v.rev, r, o, d)
	}
}

func hashOf(parts [][]byte) [32]byte {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return [32]byte(h.Sum(nil))
}

// mustBeATree checks all that a tree of keys promises, from root down.
func mustBeATree(t testing.TB, root *keys.Node) {
	t.Helper()
	if err := root.Check(); err != nil {
		t.Error(err)
	}
}
