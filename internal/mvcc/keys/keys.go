// Package keys holds keys with their versions in a tree that can be frozen in constant time.
// It never knows which request made a version.
package keys

import "sync/atomic"

// Revision counts the successful mutating requests. A new state is at 1, as
// in etcd, so the first change makes revision 2.
type Revision int64

// LeaseID names a lease. The proposer draws it, never the state.
type LeaseID int64

// Range is a set of keys as etcd writes it: the one key if End is empty,
// every key from Key on if End is "\x00", otherwise Key <= k < End.
type Range struct {
	Key, End string
}

// FromKey is the End that means "no end".
const FromKey = "\x00"

// Single says whether the range is one key.
func (r Range) Single() bool { return r.End == "" }

// Contains says whether key is in the range.
func (r Range) Contains(key string) bool {
	switch r.End {
	case "":
		return key == r.Key
	case FromKey:
		return key >= r.Key
	default:
		return key >= r.Key && key < r.End
	}
}

// KV is one version of one key. Once it is in a state it is immutable, except that compaction
// cuts its link to the version before it.
type KV struct {
	Key     string
	Value   []byte
	Create  Revision // of the version that created the key
	Mod     Revision // of this version
	Version int64    // from 1 since the creation; 0 is a tombstone
	Lease   LeaseID  // 0 for none

	prev atomic.Pointer[KV]
}

// Live says whether the version is a value, not a tombstone.
func (kv *KV) Live() bool { return kv != nil && kv.Version > 0 }

// Prev returns the version before this one; nil if there is none any more.
func (kv *KV) Prev() *KV { return kv.prev.Load() }

// Link makes prev the version before this one; nil cuts the link.
func (kv *KV) Link(prev *KV) { kv.prev.Store(prev) }

// At returns the version that was current at rev; nil if there was none.
func (kv *KV) At(rev Revision) *KV {
	for kv != nil && kv.Mod > rev {
		kv = kv.prev.Load()
	}
	return kv
}
