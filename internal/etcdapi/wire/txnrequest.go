package wire

import (
	"bytes"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// MaxTxnOps is how many compares, and how many operations in each branch, a
// transaction may have: etcd's default.
const MaxTxnOps = 128

// TxnRequest is etcd's request of that name.
type TxnRequest struct {
	Request mvcc.Request
	// Local: every operation is a read that may be answered from the local state.
	// Compares do not count.
	Local   bool
	Size    int   // bytes of the message
	Invalid error // what etcd says if it refuses to do it; nil otherwise
}

// The numbers of a TxnRequest's fields.
const (
	txnCompare = 1
	txnSuccess = 2
	txnFailure = 3
)

func (q *TxnRequest) parse(b []byte) error {
	q.Request.Kind, q.Size, q.Local = mvcc.Txn, len(b), true
	var count [4]int
	for f := (fields{b: b}); ; {
		if !f.next() {
			if f.err != nil {
				return f.err
			}
			break
		}
		if f.typ == protowire.BytesType && f.num <= txnFailure {
			count[f.num]++
		}
	}
	if max(count[txnCompare], count[txnSuccess], count[txnFailure]) > MaxTxnOps {
		q.Invalid = rpctypes.ErrGRPCTooManyOps
		return nil
	}
	if n := count[txnCompare]; n > 0 {
		q.Request.Compares = make([]mvcc.Compare, 0, n)
	}
	ops := make([]mvcc.Op, count[txnSuccess]+count[txnFailure]) // one allocation for both branches
	q.Request.Then = ops[:0:count[txnSuccess]]
	q.Request.Else = ops[count[txnSuccess]:count[txnSuccess]]
	if err := q.parseParts(b); err != nil || q.Invalid != nil {
		return err
	}
	if changesTwice(q.Request.Then) || changesTwice(q.Request.Else) {
		q.Invalid = rpctypes.ErrGRPCDuplicateKey
	}
	return nil
}

// parseParts reads compares and operations. Of several that etcd refuses, the
// request's Invalid is about the one that etcd finds first: it looks at the
// compares, then at the success branch, then at the failure branch.
func (q *TxnRequest) parseParts(b []byte) error {
	var invalid [4]error
	f := fields{b: b}
	for f.next() {
		var bad, err error
		switch {
		case f.length(txnCompare):
			q.Request.Compares = append(q.Request.Compares, mvcc.Compare{})
			bad, err = parseCompare(&q.Request.Compares[len(q.Request.Compares)-1], f.sub)
		case f.length(txnSuccess):
			q.Request.Then = append(q.Request.Then, mvcc.Op{})
			bad, err = q.parseOp(&q.Request.Then[len(q.Request.Then)-1], f.sub)
		case f.length(txnFailure):
			q.Request.Else = append(q.Request.Else, mvcc.Op{})
			bad, err = q.parseOp(&q.Request.Else[len(q.Request.Else)-1], f.sub)
		}
		if err != nil {
			return err
		}
		if bad != nil && invalid[f.num] == nil {
			invalid[f.num] = bad
		}
	}
	for _, bad := range invalid {
		if bad != nil {
			q.Invalid = bad
			break
		}
	}
	return nil
}

// parseOp reads a RequestOp. A message that holds several operations stands for
// the last of them; parts of one operation are merged. So protocol buffers want it.
func (q *TxnRequest) parseOp(op *mvcc.Op, b []byte) (invalid, err error) {
	local, is := false, protowire.Number(0)
	f := fields{b: b}
	for f.next() {
		if f.typ != protowire.BytesType || f.num > 4 {
			continue
		}
		if f.num != is {
			*op, is, local = mvcc.Op{}, f.num, false
		}
		switch is {
		case 1:
			var serializable bool
			serializable, err = parseRange(op, f.sub)
			local = local || serializable
		case 2:
			err = parsePut(op, f.sub)
		case 3:
			err = parseDelete(op, f.sub)
		}
		if err != nil {
			return nil, err
		}
	}
	q.Local = q.Local && local
	switch is {
	case 1:
		invalid = checkRange(op)
	case 2:
		invalid = checkPut(op)
	case 3:
		invalid = checkDelete(op)
	case 4:
		invalid = errNestedTxn
	default:
		invalid = rpctypes.ErrGRPCKeyNotFound // etcd's answer to an empty operation
	}
	return invalid, f.err
}

// compareTargets gives, for each of etcd's targets, ours, and the field of a
// Compare that holds what to compare with.
var compareTargets = [...]struct {
	target mvcc.CompareTarget
	field  protowire.Number
}{
	{mvcc.TargetVersion, 4},
	{mvcc.TargetCreate, 5},
	{mvcc.TargetMod, 6},
	{mvcc.TargetValue, 7},
	{mvcc.TargetLease, 8},
}

var compareResults = [...]mvcc.CompareResult{mvcc.Equal, mvcc.Greater, mvcc.Less, mvcc.NotEqual}

// parseCompare reads a Compare. If the value in it is not of the compare's target,
// it compares with zero, as etcd does.
func parseCompare(c *mvcc.Compare, b []byte) (invalid, err error) {
	var result, target uint64
	var with struct {
		field protowire.Number
		n     uint64
		value []byte
	}
	f := fields{b: b}
	for f.next() {
		switch {
		case f.integer(1):
			result = uint64(uint32(f.n))
		case f.integer(2):
			target = uint64(uint32(f.n))
		case f.length(3):
			c.Range.Key = string(f.sub)
		case f.integer(4), f.integer(5), f.integer(6), f.length(7), f.integer(8):
			with.field, with.n, with.value = f.num, f.n, f.sub
		case f.length(64):
			c.Range.End = string(f.sub)
		}
	}
	switch {
	case f.err != nil:
		return nil, f.err
	case c.Range.Key == "":
		return rpctypes.ErrGRPCEmptyKey, nil
	case target >= uint64(len(compareTargets)) || result >= uint64(len(compareResults)):
		return errUnknownCompare, nil
	}
	c.Target, c.Result = compareTargets[target].target, compareResults[result]
	if with.field == compareTargets[target].field {
		c.Int = int64(with.n)
		if len(with.value) > 0 {
			c.Value = bytes.Clone(with.value)
		}
	}
	return nil, nil
}

// changesTwice says whether two of the operations could change one key, where two
// deletes may overlap. etcd refuses a transaction with such a branch, whether or
// not the branch would be taken.
func changesTwice(ops []mvcc.Op) bool {
	if len(ops) < 2 {
		return false
	}
	puts := make(map[string]struct{}, len(ops))
	for i := range ops {
		if ops[i].Kind != mvcc.OpPut {
			continue
		}
		key := ops[i].Range.Key
		if _, ok := puts[key]; ok {
			return true
		}
		puts[key] = struct{}{}
	}
	if len(puts) == 0 {
		return false
	}
	for i := range ops {
		if ops[i].Kind != mvcc.OpDelete {
			continue
		}
		for key := range puts {
			if ops[i].Range.Contains(key) {
				return true
			}
		}
	}
	return false
}
