package mvcc

import "sync/atomic"

// KV is one version of one key. It is immutable once it is in a state, but
// for the link to the version before it, which compaction cuts.
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

// at returns the version that was current at rev; nil if there was none.
func (kv *KV) at(rev Revision) *KV {
	for kv != nil && kv.Mod > rev {
		kv = kv.prev.Load()
	}
	return kv
}

// Change is one key changed at one revision.
type Change struct {
	KV   *KV
	Prev *KV // the live version before it; nil if the change created the key
}
