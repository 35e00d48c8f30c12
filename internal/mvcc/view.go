package mvcc

import (
	"bytes"
	"cmp"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc/keys"
)

// View is the frozen state at one slot. Any number of readers may use it, for any time, while
// the state changes.
type View struct {
	slot    journal.Slot
	rev     Revision
	compact Revision
	root    *keys.Node
	log     []Change // ordered by revision, then key; all at or above compact, perhaps some below
	// pruned is the revision below which versions may have been cut, also in this view.
	// The view shares it with the state, which raises it before it cuts.
	pruned *atomic.Int64
}

// Slot returns the last slot applied.
func (v *View) Slot() journal.Slot { return v.slot }

// Revision returns the revision of the last change.
func (v *View) Revision() Revision { return v.rev }

// Compacted returns the compacted revision, which is the oldest that can be read; 0 if there
// was no compaction.
func (v *View) Compacted() Revision { return v.compact }

// SortTarget is what a read sorts by.
type SortTarget uint8

// The targets of a sort; the numbers are etcd's.
const (
	SortByKey SortTarget = iota
	SortByVersion
	SortByCreate
	SortByMod
	SortByValue
)

// SortOrder is the direction of a sort.
type SortOrder uint8

// The orders of a sort; the numbers are etcd's.
const (
	Unsorted SortOrder = iota // ascending
	Ascend
	Descend
)

// ReadOptions are the options of a range read, as in etcd's RangeRequest.
type ReadOptions struct {
	Revision  Revision // 0 or less: the newest
	Limit     int64    // 0 or less: none
	CountOnly bool
	KeysOnly  bool       // the KVs keep all; the caller leaves out values when it encodes them and, as etcd 3.7, leases
	Order     SortOrder  // with a Target beside the key, Unsorted means Ascend
	Target    SortTarget // equal ones stay in the order of keys

	MinMod, MaxMod, MinCreate, MaxCreate Revision // 0: no bound
}

func (o *ReadOptions) filtered() bool {
	return o.MinMod|o.MaxMod|o.MinCreate|o.MaxCreate != 0
}

func (o *ReadOptions) sorted() bool { return o.Target != SortByKey || o.Order == Descend }

func (o *ReadOptions) keeps(kv *KV) bool {
	return kv.Mod >= o.MinMod && (o.MaxMod == 0 || kv.Mod <= o.MaxMod) &&
		kv.Create >= o.MinCreate && (o.MaxCreate == 0 || kv.Create <= o.MaxCreate)
}

// ReadResult is the answer to a range read.
type ReadResult struct {
	KVs      []*KV
	KeysOnly bool  // as asked: the values of KVs are to be left out
	More     bool  // there are keys past the limit; never with CountOnly
	Count    int64 // the exact number of keys in the range, filters and limit aside
}

// Get returns the live version of key; nil if there is none.
func (v *View) Get(key string) *KV {
	if kv := v.root.Get(key); kv.Live() {
		return kv
	}
	return nil
}

// Read answers a range read. The error is nil, ErrCompacted or ErrFutureRevision.
func (v *View) Read(r KeyRange, o ReadOptions) (ReadResult, error) {
	if err := v.checkRevision(o.Revision); err != nil {
		return ReadResult{}, err
	}
	var res ReadResult
	if o.Revision <= 0 || o.Revision == v.rev {
		res = readNewest(v.root, r, &o)
	} else {
		res = readAt(v.root, r, &o)
		// Versions may have been cut while we walked.
		if o.Revision < Revision(v.pruned.Load()) {
			return ReadResult{}, ErrCompacted
		}
	}
	return res, nil
}

func (v *View) checkRevision(rev Revision) error {
	return checkRevision(rev, v.rev, v.compact)
}

func checkRevision(rev, current, compact Revision) error {
	switch {
	case rev > current:
		return ErrFutureRevision
	case rev > 0 && rev < compact:
		return ErrCompacted
	default:
		return nil
	}
}

// readNewest reads the newest versions below root; the count costs O(log n).
func readNewest(root *keys.Node, r KeyRange, o *ReadOptions) ReadResult {
	res := ReadResult{KeysOnly: o.KeysOnly}
	if r.Single() {
		if kv := root.Get(r.Key); kv.Live() {
			res.Count = 1
			if !o.CountOnly && o.keeps(kv) {
				res.KVs = []*KV{kv}
			}
		}
		return res
	}
	res.Count = int64(root.Count(r))
	if o.CountOnly || res.Count == 0 {
		return res
	}
	all := o.filtered() || o.sorted()
	want := res.Count
	if !all && o.Limit > 0 {
		want = min(want, o.Limit)
	}
	res.KVs = make([]*KV, 0, want)
	root.Ascend(r, func(kv *KV) bool {
		if kv.Live() {
			res.KVs = append(res.KVs, kv)
		}
		return int64(len(res.KVs)) < want
	})
	res.finish(o, all)
	return res
}

// readAt reads the versions at an older revision. It walks the whole range, because counts of
// past revisions are not kept.
func readAt(root *keys.Node, r KeyRange, o *ReadOptions) ReadResult {
	res := ReadResult{KeysOnly: o.KeysOnly}
	all := o.filtered() || o.sorted()
	take := func(kv *KV) bool {
		kv = kv.At(o.Revision)
		if !kv.Live() {
			return true
		}
		res.Count++
		if !o.CountOnly && (all || o.Limit <= 0 || res.Count <= o.Limit) {
			res.KVs = append(res.KVs, kv)
		}
		return true
	}
	if r.Single() {
		if kv := root.Get(r.Key); kv != nil {
			take(kv)
		}
	} else {
		root.Ascend(r, take)
	}
	res.finish(o, all)
	return res
}

// finish filters, sorts and cuts what was read.
func (res *ReadResult) finish(o *ReadOptions, all bool) {
	if o.CountOnly {
		return
	}
	if !all {
		res.More = int64(len(res.KVs)) < res.Count
		return
	}
	if o.filtered() {
		res.KVs = slices.DeleteFunc(res.KVs, func(kv *KV) bool { return !o.keeps(kv) })
	}
	if o.sorted() {
		slices.SortStableFunc(res.KVs, func(a, b *KV) int {
			c := compareBy(o.Target, a, b)
			if o.Order == Descend {
				c = -c
			}
			return c
		})
	}
	if o.Limit > 0 && int64(len(res.KVs)) > o.Limit {
		res.KVs, res.More = res.KVs[:o.Limit], true
	}
}

func compareBy(t SortTarget, a, b *KV) int {
	switch t {
	case SortByVersion:
		return cmp.Compare(a.Version, b.Version)
	case SortByCreate:
		return cmp.Compare(a.Create, b.Create)
	case SortByMod:
		return cmp.Compare(a.Mod, b.Mod)
	case SortByValue:
		return bytes.Compare(a.Value, b.Value)
	default:
		return cmp.Compare(a.Key, b.Key)
	}
}

// Changes returns every change with from <= revision <= to, ordered by revision, then key. The
// caller must not change the slice, which belongs to the view. The error is ErrCompacted if
// from is below the compacted revision.
func (v *View) Changes(from, to Revision) ([]Change, error) {
	if from < v.compact {
		return nil, ErrCompacted
	}
	lo := sort.Search(len(v.log), func(i int) bool { return v.log[i].KV.Mod >= from })
	hi := lo + sort.Search(len(v.log)-lo, func(i int) bool { return v.log[lo+i].KV.Mod > to })
	return v.log[lo:hi:hi], nil
}

// Holds says whether every compare holds in the view.
func (v *View) Holds(compares []Compare) bool { return holds(v.root, compares) }

func holds(root *keys.Node, compares []Compare) bool {
	for i := range compares {
		if !compares[i].holds(root) {
			return false
		}
	}
	return true
}

var absent = &KV{}

func (c *Compare) holds(root *keys.Node) bool {
	if c.Range.Single() {
		kv := root.Get(c.Range.Key)
		if !kv.Live() {
			if c.Target == TargetValue {
				return false // as in etcd: a value is compared only where there is one
			}
			kv = absent
		}
		return c.match(kv)
	}
	found, ok := false, true
	root.Ascend(c.Range, func(kv *KV) bool {
		if kv.Live() {
			found = true
			ok = c.match(kv)
		}
		return ok
	})
	if !found {
		return c.Target != TargetValue && c.match(absent)
	}
	return ok
}

func (c *Compare) match(kv *KV) bool {
	var d int
	switch c.Target {
	case TargetVersion:
		d = cmp.Compare(kv.Version, c.Int)
	case TargetCreate:
		d = cmp.Compare(int64(kv.Create), c.Int)
	case TargetMod:
		d = cmp.Compare(int64(kv.Mod), c.Int)
	case TargetValue:
		d = bytes.Compare(kv.Value, c.Value)
	case TargetLease:
		d = cmp.Compare(int64(kv.Lease), c.Int)
	}
	switch c.Result {
	case Equal:
		return d == 0
	case Greater:
		return d > 0
	case Less:
		return d < 0
	case NotEqual:
		return d != 0
	}
	return false
}

// Answer answers a transaction whose compares pick a branch that only reads. ok is false if
// the branch writes, or the request is not a transaction.
func (v *View) Answer(r *Request) (res Result, ok bool) {
	if r.Kind != Txn {
		return Result{}, false
	}
	ops := r.Then
	if res.Succeeded = v.Holds(r.Compares); !res.Succeeded {
		ops = r.Else
	}
	if !readOnly(ops) {
		return Result{}, false
	}
	res.Revision = v.rev
	res.Ops = make([]OpResult, len(ops))
	for i := range ops {
		res.Ops[i].Kind = OpRange
		if res.Ops[i].Read, res.Err = v.Read(ops[i].Range, ops[i].Read); res.Err != nil {
			res.Ops = nil
			break
		}
	}
	return res, true
}
