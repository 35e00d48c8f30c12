package mvcc

import (
	"cmp"
	"slices"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc/wire"
)

// leases are the granted leases that were not revoked, by ID, at most MaxLeases of them.
// Invariant: the keys of a lease are the live keys that name it, and every lease that a live
// key names is here.
type leases map[LeaseID]*lease

type lease struct {
	ttl   int64        // seconds, 1 to MaxLeaseTTL
	since journal.Slot // of its grant or last renewal: what tells two leases of one ID apart
	keys  map[string]struct{}
}

// grant makes a lease. The ID must not be 0, which stands for no lease in a key.
func (ls leases) grant(id LeaseID, ttl int64, slot journal.Slot) error {
	switch {
	case id == 0:
		return ErrLeaseNotFound // as in etcd
	case ttl > MaxLeaseTTL:
		return ErrLeaseTTLTooLarge
	case ls[id] != nil:
		return ErrLeaseExists
	case len(ls) >= MaxLeases:
		return ErrTooManyLeases
	}
	ls[id] = &lease{ttl: max(ttl, 1), since: slot}
	return nil
}

// renew notes that the lease was renewed in slot, and returns its time to live.
func (ls leases) renew(id LeaseID, slot journal.Slot) (ttl int64, err error) {
	l := ls[id]
	if l == nil {
		return 0, ErrLeaseNotFound
	}
	l.since = slot
	return l.ttl, nil
}

// drop removes a lease, and returns its keys, sorted.
func (ls leases) drop(id LeaseID) (keys []string, err error) {
	l := ls[id]
	if l == nil {
		return nil, ErrLeaseNotFound
	}
	delete(ls, id)
	return sortedKeys(l.keys), nil
}

// move moves the key of kv from the lease of prev, if prev is a value, to the lease of kv.
func (ls leases) move(kv, prev *KV) {
	if prev.Live() && prev.Lease != 0 && prev.Lease != kv.Lease {
		if l := ls[prev.Lease]; l != nil {
			delete(l.keys, kv.Key)
		}
	}
	if kv.Lease != 0 {
		ls[kv.Lease].attach(kv.Key)
	}
}

// attach adds key to the lease.
func (l *lease) attach(key string) {
	if l.keys == nil {
		l.keys = map[string]struct{}{}
	}
	l.keys[key] = struct{}{}
}

func sortedKeys(m map[string]struct{}) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// leaseRow is a lease in a snapshot. Its keys are left out, because each names its lease.
type leaseRow struct {
	id    LeaseID
	ttl   int64
	since journal.Slot
}

// minLease is the shortest wire form of a row, in bytes.
const minLease = 3

// rows returns the leases by ascending id.
func (ls leases) rows() (rows []leaseRow) {
	for id, l := range ls {
		rows = append(rows, leaseRow{id, l.ttl, l.since})
	}
	slices.SortFunc(rows, func(a, b leaseRow) int { return cmp.Compare(a.id, b.id) })
	return rows
}

// writeLeases writes how many rows there are, and the rows.
func writeLeases(w *wire.Writer, rows []leaseRow) {
	w.Uvarint(uint64(len(rows)))
	for _, l := range rows {
		w.Varint(int64(l.id))
		w.Varint(l.ttl)
		w.Uvarint(uint64(l.since))
	}
}

// read reads what writeLeases wrote of a state at slot. r fails if no state can have such
// leases.
func (ls leases) read(r *wire.Reader, slot journal.Slot) {
	var last LeaseID
	for i := range r.Count(minLease, MaxLeases) {
		id, l := LeaseID(r.Varint()), &lease{ttl: r.Varint(), since: journal.Slot(r.Uvarint())}
		if id == 0 || i > 0 && id <= last || l.ttl < 1 || l.ttl > MaxLeaseTTL || l.since > slot || r.Failed {
			r.Fail()
			return
		}
		ls[id], last = l, id
	}
}
