// Package mvcc is the state machine: applying the records of slots 1..n, in order, gives keys
// with their history, leases and writers, and the outcome of every request. It never reads a
// clock, draws a random number, does I/O or starts a goroutine, so that two replicas at the
// same slot have the same state.
//
// The semantics follow etcd's server/etcdserver/txn and storage/mvcc, version
// 3.7, with these differences, none of which Kubernetes can see:
//
//   - The changes of one revision are in the order of their keys, not in the order
//     of the operations that made them.
//   - The previous value is known for every change that can be read, even for a
//     change at the compacted revision.
//   - A put and a delete from a key on (End "\x00") that overlap in one transaction
//     are a duplicate key; etcd overlooks that.
//   - With a sort target but no order, all keys are sorted and then cut at the limit;
//     etcd cuts one past the limit, then sorts.
//   - A read of a negative revision reads the newest revision, in a transaction too,
//     and compaction at 0 or below is always ErrCompacted.
package mvcc

import (
	"errors"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc/keys"
)

// The types that the state shares with package keys.
type (
	// Revision counts the successful mutating requests, from 1 in a new state.
	Revision = keys.Revision
	// LeaseID names a lease. The proposer draws it, never the state.
	LeaseID = keys.LeaseID
	// KeyRange is a set of keys as etcd writes it.
	KeyRange = keys.Range
	// KV is one version of one key.
	KV = keys.KV
)

// FromKey is the End of a KeyRange that means "no end".
const FromKey = keys.FromKey

// WriterID names one process that proposes records, for one run of it.
type WriterID uint64

// BatchNumber counts the batches of one writer, from 1. A batch without requests, which only
// fills a slot, has 0.
type BatchNumber uint64

// The closed set of errors that a request can end with. Such an error is the request's
// outcome on every replica, and the request then changes nothing. Package etcdapi maps these
// errors to etcd's.
var (
	ErrCompacted        = errors.New("required revision has been compacted")
	ErrFutureRevision   = errors.New("required revision is a future revision")
	ErrLeaseNotFound    = errors.New("requested lease not found")
	ErrLeaseExists      = errors.New("lease already exists")
	ErrLeaseTTLTooLarge = errors.New("too large lease TTL")
	ErrTooManyLeases    = errors.New("too many leases") // etcd has no such limit
	ErrDuplicateKey     = errors.New("duplicate key given in txn request")
	ErrKeyNotFound      = errors.New("key not found")
)

// MaxLeaseTTL is the longest time to live of a lease, in seconds. It is etcd's, and fits in a
// time.Duration.
const MaxLeaseTTL = 9_000_000_000

// MaxLeases is how many leases may exist at once. It bounds the part of a snapshot that holds
// them.
const MaxLeases = 1 << 20

// CompareTarget is the field of a key that a Compare compares.
type CompareTarget uint8

// The targets of a Compare; the numbers are etcd's.
const (
	TargetVersion CompareTarget = iota
	TargetCreate
	TargetMod
	TargetValue
	TargetLease
)

// CompareResult is the relation that a Compare asks for.
type CompareResult uint8

// The relations of a Compare; the numbers are etcd's.
const (
	Equal CompareResult = iota
	Greater
	Less
	NotEqual
)

// Compare holds if the target of every key of Range has the relation Result to the given
// value. The fields of a missing key are zero.
type Compare struct {
	Range  KeyRange
	Target CompareTarget
	Result CompareResult
	Int    int64  // for every target but TargetValue
	Value  []byte // for TargetValue
}

// OpKind says what an Op does.
type OpKind uint8

// The kinds of an Op.
const (
	OpRange OpKind = iota + 1
	OpPut
	OpDelete
)

// Op is one operation of a transaction. Each field below Range belongs to the kind that its
// comment names, and is zero for other kinds.
type Op struct {
	Kind  OpKind
	Range KeyRange

	Value       []byte  // put
	Lease       LeaseID // put
	IgnoreValue bool    // put: keep the value there is
	IgnoreLease bool    // put: keep the lease there is
	PrevKV      bool    // put, delete: answer with what was there

	Read ReadOptions // range
}

// RequestKind says what a Request asks for.
type RequestKind uint8

// The kinds of a Request.
const (
	Txn RequestKind = iota + 1
	Compact
	LeaseGrant
	LeaseRevoke
	LeaseRenew
	// LeaseExpire revokes a lease if it was granted or last renewed in the slot Since.
	// If a renewal, or a new lease with the same ID, reached the journal first, the
	// lease stays, and that is no error.
	LeaseExpire
)

// Request is one transaction or one control request of a client, with one outcome. It does
// not change once it is proposed.
type Request struct {
	Kind RequestKind

	Compares []Compare // Txn: all must hold for Then, otherwise Else
	Then     []Op
	Else     []Op

	Revision Revision     // Compact: everything below goes
	Lease    LeaseID      // Lease*; not 0
	TTL      int64        // LeaseGrant, seconds; below 1 counts as 1
	Since    journal.Slot // LeaseExpire
}

// ReadOnly says whether no branch of the request can change the state.
func (r *Request) ReadOnly() bool {
	return r.Kind == Txn && readOnly(r.Then) && readOnly(r.Else)
}

func readOnly(ops []Op) bool {
	for i := range ops {
		if ops[i].Kind != OpRange {
			return false
		}
	}
	return true
}

// Result is the outcome of one request.
type Result struct {
	Err       error    // one of this package's errors, or nil
	Succeeded bool     // Txn: the compares held
	Revision  Revision // of the state after the request
	Ops       []OpResult
	TTL       int64 // LeaseRenew: the time to live that the lease was granted with, in seconds
}

// OpResult is the outcome of one operation.
type OpResult struct {
	Kind    OpKind
	Read    ReadResult // range
	Prev    []*KV      // put, delete: what was there, if PrevKV was asked for
	Deleted int64      // delete: how many keys went
}

// Batch holds the requests of one record, which one writer proposed together.
type Batch struct {
	From     journal.ID // the journal that the record came from
	Writer   WriterID
	Number   BatchNumber
	Requests []Request
}
