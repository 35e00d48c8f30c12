package mvcc

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// model is the state machine written for the reader, not for speed: a map of
// all live keys for every revision there ever was. It follows etcd's
// server/etcdserver/txn, not this package.
type model struct {
	slot    journal.Slot
	compact Revision
	at      []map[string]plain // by revision; at[1] is the empty start
	leases  map[LeaseID]plainLease
	writers map[WriterID]*plainWriter
}

// plain is one live version of a key, comparable and without history.
type plain struct {
	Key, Value  string
	Create, Mod Revision
	Version     int64
	Lease       LeaseID
}

type plainLease struct {
	ttl   int64
	since journal.Slot
}

type plainWriter struct {
	seen map[BatchNumber]bool
	max  BatchNumber
}

// plainRead is the answer to a range read.
type plainRead struct {
	KVs   []plain
	More  bool
	Count int64
}

// plainOp is the outcome of one operation.
type plainOp struct {
	Read    plainRead
	Prev    []plain
	Deleted int64
}

// plainResult is the outcome of one request.
type plainResult struct {
	Err       error
	Succeeded bool
	Revision  Revision
	Ops       []plainOp
}

// plainChange is one key changed; KV.Version 0 is a deletion, Prev.Version 0
// a creation.
type plainChange struct{ KV, Prev plain }

func newModel() *model {
	return &model{
		at:      []map[string]plain{nil, {}},
		leases:  map[LeaseID]plainLease{},
		writers: map[WriterID]*plainWriter{},
	}
}

func (m *model) rev() Revision { return Revision(len(m.at) - 1) }

func (m *model) now() map[string]plain { return m.at[len(m.at)-1] }

// apply takes in a batch; nil if it is void.
func (m *model) apply(b *Batch) []plainResult {
	m.slot++
	w := m.writers[b.Writer]
	if w == nil {
		w = &plainWriter{seen: map[BatchNumber]bool{}}
		m.writers[b.Writer] = w
	}
	if b.Number == 0 || w.seen[b.Number] || w.max >= BatchWindow && b.Number <= w.max-BatchWindow {
		return nil
	}
	w.seen[b.Number] = true
	w.max = max(w.max, b.Number)
	results := make([]plainResult, len(b.Requests))
	for i := range b.Requests {
		results[i] = m.request(&b.Requests[i])
		results[i].Revision = m.rev()
	}
	return results
}

func (m *model) request(r *Request) (res plainResult) {
	l, held := m.leases[r.Lease]
	switch r.Kind {
	case Txn:
		return m.txn(r)
	case Compact:
		switch {
		case r.Revision <= m.compact:
			res.Err = ErrCompacted
		case r.Revision > m.rev():
			res.Err = ErrFutureRevision
		default:
			m.compact = r.Revision
		}
	case LeaseGrant:
		switch {
		case r.Lease == 0:
			res.Err = ErrLeaseNotFound
		case r.TTL > MaxLeaseTTL:
			res.Err = ErrLeaseTTLTooLarge
		case held:
			res.Err = ErrLeaseExists
		default:
			m.leases[r.Lease] = plainLease{ttl: max(r.TTL, 1), since: m.slot}
		}
	case LeaseRenew:
		if !held {
			res.Err = ErrLeaseNotFound
			break
		}
		m.leases[r.Lease] = plainLease{l.ttl, m.slot}
	case LeaseRevoke:
		if !held {
			res.Err = ErrLeaseNotFound
			break
		}
		m.revoke(r.Lease)
	case LeaseExpire:
		if held && l.since == r.Since {
			m.revoke(r.Lease)
		}
	}
	return res
}

func (m *model) revoke(id LeaseID) {
	next := maps.Clone(m.now())
	maps.DeleteFunc(next, func(_ string, kv plain) bool { return kv.Lease == id })
	if len(next) != len(m.now()) {
		m.at = append(m.at, next)
	}
	delete(m.leases, id)
}

func (m *model) txn(r *Request) (res plainResult) {
	res.Succeeded = true
	for _, c := range r.Compares {
		res.Succeeded = res.Succeeded && m.compare(c)
	}
	ops := r.Then
	if !res.Succeeded {
		ops = r.Else
	}
	if res.Err = m.check(ops); res.Err != nil {
		return res
	}
	next, rev, changed := maps.Clone(m.now()), m.rev()+1, false
	for _, op := range ops {
		var out plainOp
		switch op.Kind {
		case OpRange:
			from := next
			if op.Read.Revision > 0 {
				from = m.at[op.Read.Revision]
			}
			out.Read = read(from, op.Range, op.Read)
		case OpPut:
			old, ok := next[op.Range.Key]
			if ok && op.PrevKV {
				out.Prev = []plain{old}
			}
			kv := plain{op.Range.Key, string(op.Value), rev, rev, old.Version + 1, op.Lease}
			if ok {
				kv.Create = old.Create
			}
			if op.IgnoreValue {
				kv.Value = old.Value
			}
			if op.IgnoreLease {
				kv.Lease = old.Lease
			}
			next[kv.Key] = kv
			changed = true
		case OpDelete:
			for _, kv := range inRange(next, op.Range) {
				out.Deleted++
				if op.PrevKV {
					out.Prev = append(out.Prev, kv)
				}
				delete(next, kv.Key)
				changed = true
			}
		}
		res.Ops = append(res.Ops, out)
	}
	if changed {
		m.at = append(m.at, next)
	}
	return res
}

func (m *model) check(ops []Op) error {
	for _, op := range ops {
		switch op.Kind {
		case OpRange:
			if err := m.readable(op.Read.Revision); err != nil {
				return err
			}
		case OpPut:
			if _, ok := m.leases[op.Lease]; op.Lease != 0 && !ok {
				return ErrLeaseNotFound
			}
			if _, ok := m.now()[op.Range.Key]; (op.IgnoreValue || op.IgnoreLease) && !ok {
				return ErrKeyNotFound
			}
		}
	}
	for i, a := range ops {
		for j, b := range ops {
			if i != j && a.Kind == OpPut && (b.Kind == OpPut && a.Range.Key == b.Range.Key || b.Kind == OpDelete && b.Range.Contains(a.Range.Key)) {
				return ErrDuplicateKey
			}
		}
	}
	return nil
}

func (m *model) readable(rev Revision) error {
	if rev > m.rev() {
		return ErrFutureRevision
	}
	if rev > 0 && rev < m.compact {
		return ErrCompacted
	}
	return nil
}

func (m *model) compare(c Compare) bool {
	kvs := inRange(m.now(), c.Range)
	if len(kvs) == 0 {
		if c.Target == TargetValue {
			return false
		}
		kvs = []plain{{}}
	}
	for _, kv := range kvs {
		d := map[CompareTarget]int{
			TargetVersion: cmp.Compare(kv.Version, c.Int),
			TargetCreate:  cmp.Compare(int64(kv.Create), c.Int),
			TargetMod:     cmp.Compare(int64(kv.Mod), c.Int),
			TargetValue:   bytes.Compare([]byte(kv.Value), c.Value),
			TargetLease:   cmp.Compare(int64(kv.Lease), c.Int),
		}[c.Target]
		if ok := map[CompareResult]bool{Equal: d == 0, Greater: d > 0, Less: d < 0, NotEqual: d != 0}[c.Result]; !ok {
			return false
		}
	}
	return true
}

// read answers a range read of one revision's keys.
func read(from map[string]plain, r KeyRange, o ReadOptions) plainRead {
	all := inRange(from, r)
	res := plainRead{Count: int64(len(all))}
	if o.CountOnly {
		return res
	}
	for _, kv := range all {
		if (o.MinMod == 0 || kv.Mod >= o.MinMod) && (o.MaxMod == 0 || kv.Mod <= o.MaxMod) &&
			(o.MinCreate == 0 || kv.Create >= o.MinCreate) && (o.MaxCreate == 0 || kv.Create <= o.MaxCreate) {
			res.KVs = append(res.KVs, kv)
		}
	}
	order := o.Order
	if order == Unsorted {
		order = Ascend
	}
	sort.SliceStable(res.KVs, func(i, j int) bool {
		a, b := res.KVs[i], res.KVs[j]
		if order == Descend {
			a, b = b, a
		}
		switch o.Target {
		case SortByVersion:
			return a.Version < b.Version
		case SortByCreate:
			return a.Create < b.Create
		case SortByMod:
			return a.Mod < b.Mod
		case SortByValue:
			return a.Value < b.Value
		default:
			return a.Key < b.Key
		}
	})
	if o.Limit > 0 && int64(len(res.KVs)) > o.Limit {
		res.KVs, res.More = res.KVs[:o.Limit], true
	}
	return res
}

// inRange returns the keys of r, in order.
func inRange(from map[string]plain, r KeyRange) []plain {
	var out []plain
	for k, kv := range from {
		in := k >= r.Key && k < r.End
		switch r.End {
		case "":
			in = k == r.Key
		case "\x00":
			in = k >= r.Key
		}
		if in {
			out = append(out, kv)
		}
	}
	slices.SortFunc(out, func(a, b plain) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// changes compares each revision with the one before it.
func (m *model) changes(from, to Revision) ([]plainChange, error) {
	if from < m.compact {
		return nil, ErrCompacted
	}
	var out []plainChange
	for rev := max(from, 2); rev <= min(to, m.rev()); rev++ {
		was, is := m.at[rev-1], m.at[rev]
		all := maps.Clone(was)
		maps.Copy(all, is)
		for _, kv := range inRange(all, KeyRange{End: FromKey}) {
			old, now := was[kv.Key], is[kv.Key]
			if old == now {
				continue
			}
			if now.Version == 0 {
				now = plain{Key: kv.Key, Mod: rev}
			}
			out = append(out, plainChange{now, old})
		}
	}
	return out, nil
}

// What follows turns this package's answers into the model's.

func plainKV(kv *KV) plain {
	if kv == nil {
		return plain{}
	}
	return plain{kv.Key, string(kv.Value), kv.Create, kv.Mod, kv.Version, kv.Lease}
}

func plainKVs(kvs []*KV) []plain {
	var out []plain
	for _, kv := range kvs {
		out = append(out, plainKV(kv))
	}
	return out
}

func plainReadOf(r ReadResult) plainRead { return plainRead{plainKVs(r.KVs), r.More, r.Count} }

func plainResults(results []Result) []plainResult {
	if results == nil {
		return nil
	}
	out := make([]plainResult, len(results))
	for i, r := range results {
		out[i] = plainResult{Err: r.Err, Succeeded: r.Succeeded, Revision: r.Revision}
		for _, op := range r.Ops {
			out[i].Ops = append(out[i].Ops, plainOp{plainReadOf(op.Read), plainKVs(op.Prev), op.Deleted})
		}
	}
	return out
}

func plainChanges(changes []Change) []plainChange {
	var out []plainChange
	for _, c := range changes {
		out = append(out, plainChange{plainKV(c.KV), plainKV(c.Prev)})
	}
	return out
}
