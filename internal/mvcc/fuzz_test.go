package mvcc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc/wire"
)

func pointers(requests []Request) []*Request {
	out := make([]*Request, len(requests))
	for i := range requests {
		out[i] = &requests[i]
	}
	return out
}

// hostile are requests that no well-meaning proposer sends.
var hostile = []Request{
	{Kind: Txn},
	{Kind: Txn, Then: []Op{{Kind: OpPut}}},
	{Kind: Txn, Then: []Op{{Kind: OpPut, Range: KeyRange{Key: "k", End: "a"}, Lease: -1, IgnoreValue: true, IgnoreLease: true, PrevKV: true}}},
	{Kind: Txn, Then: []Op{{Kind: OpRange, Range: KeyRange{Key: "z", End: "a"}, Read: ReadOptions{Revision: math.MinInt64, Limit: math.MinInt64, Order: Descend, Target: SortByValue}}}},
	{Kind: Txn, Then: []Op{{Kind: OpRange, Range: KeyRange{Key: "", End: FromKey}, Read: ReadOptions{Revision: math.MaxInt64, Limit: math.MaxInt64, MinMod: -1, MaxMod: math.MinInt64}}}},
	{Kind: Txn, Then: []Op{{Kind: OpDelete, Range: KeyRange{Key: "", End: FromKey}}, {Kind: OpDelete, Range: KeyRange{Key: "a", End: "z"}, PrevKV: true}, {Kind: OpDelete}}},
	{Kind: Txn, Then: []Op{{Kind: OpPut, Range: KeyRange{Key: "k"}}, {Kind: OpDelete, Range: KeyRange{Key: "a", End: "z"}}, {Kind: OpPut, Range: KeyRange{Key: "k"}}}},
	{Kind: Txn, Compares: []Compare{{Range: KeyRange{Key: "z", End: "a"}, Target: TargetValue, Result: NotEqual}, {Range: KeyRange{Key: "", End: FromKey}, Target: TargetLease, Int: math.MinInt64}}},
	{Kind: Compact, Revision: math.MinInt64}, {Kind: Compact, Revision: math.MaxInt64}, {Kind: Compact}, {Kind: Compact, Revision: 1},
	{Kind: LeaseGrant, TTL: math.MaxInt64}, {Kind: LeaseGrant, Lease: -1, TTL: math.MinInt64}, {Kind: LeaseGrant, Lease: 1},
	{Kind: LeaseRenew}, {Kind: LeaseRevoke}, {Kind: LeaseExpire, Since: math.MaxUint64}, {Kind: LeaseRevoke, Lease: -1},
}

func FuzzParseRequests(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendRequests(nil, pointers(hostile)))
	g := newGen(1)
	for range 20 {
		f.Add(AppendRequests(nil, pointers(g.batch(100, 10, map[WriterID]BatchNumber{}).Requests)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var requests []Request
		var err error
		if got := allocated(func() { requests, err = ParseRequests(b) }); got > 3*MaxBatchWeight+2*uint64(len(b)) {
			t.Errorf("%d bytes took %d bytes of memory", len(b), got)
		}
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Error(err)
			}
			return
		}
		again := AppendRequests(nil, pointers(requests))
		back, err := ParseRequests(again)
		if err != nil || !reflect.DeepEqual(back, requests) {
			t.Errorf("%+v came back as %+v, %v", requests, back, err)
		}
	})
}

// script is batches as bytes, for FuzzState: writer, number, the length of
// the body, the body.
func script(batches ...*Batch) []byte {
	var b []byte
	for _, x := range batches {
		body := AppendRequests(nil, pointers(x.Requests))
		b = append(b, byte(x.Writer), byte(x.Number))
		b = append(binary.AppendUvarint(b, uint64(len(body))), body...)
	}
	return b
}

// FuzzState applies whatever the bytes hold. Nothing may panic, and the same
// bytes must give the same state, pruned or not, answered or not, thawed or not.
func FuzzState(f *testing.F) {
	f.Add(script(&Batch{Writer: 1, Number: 1, Requests: hostile}, &Batch{Writer: 1, Number: 255, Requests: hostile}))
	for seed := uint64(1); seed <= 8; seed++ {
		g, sent, all := newGen(seed), map[WriterID]BatchNumber{}, []*Batch(nil)
		for range 8 {
			all = append(all, g.batch(10, 3, sent))
		}
		f.Add(script(all...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, pruned := New(), New()
		for slot := journal.Slot(1); len(b) > 2; slot++ {
			in := Batch{Writer: WriterID(b[0]), Number: BatchNumber(b[1])}
			if in.Number == 255 {
				in.Number = math.MaxUint64
			}
			n, size := binary.Uvarint(b[2:])
			if size <= 0 || n > uint64(len(b)-2-size) {
				return
			}
			body := b[2+size:][:n]
			b = b[2+size:][n:]
			var err error
			if in.Requests, err = ParseRequests(body); err != nil {
				whole.Skip(slot)
				pruned.Skip(slot)
				continue
			}
			view := pruned.View()
			whole.Apply(slot, &in, true)
			pruned.Apply(slot, &in, false)
			pruned.Prune(1 + int(in.Number%3))
			for i := range in.Requests {
				ask(view, &in.Requests[i])
				ask(pruned.View(), &in.Requests[i])
			}
		}
		want := parts(t, whole)
		sameParts(t, "pruned", parts(t, pruned), want)
		sameParts(t, "thawed", parts(t, mustThaw(t, want)), want)
		mustBeATree(t, pruned.keys.Root())
	})
}

// ask reads what a request would read.
func ask(v *View, r *Request) {
	v.Answer(r)
	v.Holds(r.Compares)
	for _, ops := range [][]Op{r.Then, r.Else} {
		for i := range ops {
			v.Get(ops[i].Range.Key)
			v.Read(ops[i].Range, ops[i].Read)
			v.Changes(ops[i].Read.MinMod, ops[i].Read.MaxMod)
		}
	}
}

// FuzzThaw takes parts that may be of no state. What is accepted must be one
// that goes on: it encodes to what gives it again, and survives every request.
func FuzzThaw(f *testing.F) {
	f.Add([]byte{}, []byte{})
	for seed := uint64(1); seed <= 8; seed++ {
		g, m, s := newGen(seed), newModel(), New()
		sent := map[WriterID]BatchNumber{}
		for slot := journal.Slot(1); slot <= 6*journal.Slot(seed); slot++ {
			b := g.batch(m.rev(), m.compact, sent)
			m.apply(b)
			s.Apply(slot, b, false)
		}
		p := append(parts(f, s), nil)
		f.Add(p[0], p[1])
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var s *State
		var err error
		if got := allocated(func() { s, err = thaw([][]byte{first, second}) }); got > 1<<20+256*uint64(len(first)+len(second)) {
			t.Errorf("%d and %d bytes took %d bytes of memory", len(first), len(second), got)
		}
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Error(err)
			}
			return
		}
		want := parts(t, s)
		twin := mustThaw(t, want)
		sameParts(t, "thawed again", parts(t, twin), want)
		all := Op{Kind: OpDelete, Range: KeyRange{End: FromKey}, PrevKV: true}
		requests := append(bytes2requests(first), hostile...)
		for id := range s.leases {
			requests = append(requests, Request{Kind: LeaseRenew, Lease: id}, Request{Kind: LeaseRevoke, Lease: id})
		}
		requests = append(requests, Request{Kind: Txn, Then: []Op{all}}, Request{Kind: Compact, Revision: s.rev})
		if s.slot == math.MaxUint64 || s.rev > math.MaxInt64/2 {
			return // as old as a state can get
		}
		for _, s := range []*State{s, twin} {
			s.Apply(s.slot+1, &Batch{Writer: 1, Number: math.MaxUint64, Requests: requests}, true)
		}
		for s.Prune(3) {
		}
		sameParts(t, "gone on", parts(t, s), parts(t, twin))
	})
}

// bytes2requests makes puts out of bytes.
func bytes2requests(b []byte) (out []Request) {
	for _, k := range bytes.Fields(b) {
		out = append(out, Request{Kind: Txn, Then: []Op{{Kind: OpPut, Range: KeyRange{Key: string(k)}}}})
	}
	return out
}

// Parts that have the right shape, but are of no state.
func TestThawRefuses(t *testing.T) {
	s := New()
	put := func(key, value string, lease LeaseID) Request {
		return Request{Kind: Txn, Then: []Op{{Kind: OpPut, Range: KeyRange{Key: key}, Value: []byte(value), Lease: lease}}}
	}
	s.Apply(1, &Batch{Writer: 5, Number: 1, Requests: []Request{
		{Kind: LeaseGrant, Lease: 7, TTL: 60},
		put("a", "1", 0), put("a", "2", 7), put("b", "1", 0), put("a", "3", 0),
		{Kind: Compact, Revision: 3},
	}}, false)
	good := parts(t, s)
	mustThaw(t, good)

	frame := func(edit func(f *Frozen)) []byte {
		f := s.Freeze()
		v := *f.View
		f.View = &v
		edit(f)
		return f.firstPart()
	}
	history := func(versions ...*KV) []byte {
		w := wire.Writer{}
		writeVersions(&w, versions)
		return w.B
	}
	a2 := &KV{Key: "a", Create: 2, Mod: 3, Version: 2}
	a1 := &KV{Key: "a", Create: 2, Mod: 2, Version: 1}
	a3 := &KV{Key: "a", Create: 2, Mod: 5, Version: 3}
	b := &KV{Key: "b", Create: 4, Mod: 4, Version: 1}
	bad := map[string][][]byte{
		"no key, though there are revisions":  {good[0]},
		"a key twice":                         {good[0], good[1], history(b)},
		"keys out of order":                   {good[0], history(b), history(a3, a2, a1)},
		"a revision without a change":         {good[0], history(a3, a2, a1)},
		"a version too many":                  {good[0], append(history(a3, a2, a1, &KV{Key: "a", Mod: 1}), history(b)...)},
		"two versions below compaction":       {frame(func(f *Frozen) { f.View.compact = 4 }), append(history(a3, a2, a1), history(b)...)},
		"a version from the future":           {good[0], append(history(&KV{Key: "a", Create: 2, Mod: 6, Version: 3}, a2, a1), history(b)...)},
		"a version that skips one":            {good[0], append(history(a3, a1), history(&KV{Key: "b", Create: 3, Mod: 3, Version: 1})...)},
		"a first version that is no creation": {good[0], append(history(a3, a2, a1), history(&KV{Key: "b", Create: 3, Mod: 4, Version: 2})...)},
		"a tombstone of nothing":              {good[0], append(history(a3, a2, a1), history(&KV{Key: "b", Mod: 4})...)},
		"a creation of another time":          {good[0], append(history(a3, a2, a1), history(&KV{Key: "b", Create: 3, Mod: 4, Version: 1})...)},
		"a negative version":                  {good[0], append(history(a3, a2, a1), history(&KV{Key: "b", Create: 4, Mod: 4, Version: -1})...)},
		"a lease that is not there":           {good[0], append(history(a3, a2, a1), history(&KV{Key: "b", Create: 4, Mod: 4, Version: 1, Lease: 8})...)},
		"a lease twice":                       {frame(func(f *Frozen) { f.leases = append(f.leases, f.leases...) }), good[1]},
		"lease 0":                             {frame(func(f *Frozen) { f.leases = []leaseRow{{0, 60, 0}} }), good[1]},
		"a lease of no time":                  {frame(func(f *Frozen) { f.leases[0].ttl = 0 }), good[1]},
		"a lease of all time":                 {frame(func(f *Frozen) { f.leases[0].ttl = MaxLeaseTTL + 1 }), good[1]},
		"a writer twice":                      {frame(func(f *Frozen) { f.writers = append(f.writers, f.writers...) }), good[1]},
		"a writer ahead":                      {frame(func(f *Frozen) { f.writers[0].last = 2 }), good[1]},
		"compacted ahead":                     {frame(func(f *Frozen) { f.View.compact = 6 }), good[1]},
		"compacted below 0":                   {frame(func(f *Frozen) { f.View.compact = -1 }), good[1]},
		"revision 0":                          {frame(func(f *Frozen) { f.View.rev, f.View.compact = 0, 0 }), good[1]},
		"a revision too many":                 {frame(func(f *Frozen) { f.View.rev = 6 }), good[1]},
		"a byte too many":                     {append(bytes.Clone(good[0]), 0), good[1]},
		"a byte too few":                      {good[0], good[1][:len(good[1])-1]},
		"no version":                          {good[0], append(bytes.Clone(good[1]), 1, 'c', 0)},
	}
	for name, p := range bad {
		if _, err := thaw(p); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
