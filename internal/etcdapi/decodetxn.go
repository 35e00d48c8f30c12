package etcdapi

import (
	"bytes"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// txnQuestion is a TxnRequest.
type txnQuestion struct {
	req     mvcc.Request
	local   bool // it only reads, and each read may be answered from the local state
	bytes   int  // of the message
	invalid error
}

// The fields of a TxnRequest.
const (
	txnCompare = 1
	txnSuccess = 2
	txnFailure = 3
)

func (q *txnQuestion) parse(b []byte) error {
	q.req.Kind, q.bytes, q.local = mvcc.Txn, len(b), true
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
	if max(count[txnCompare], count[txnSuccess], count[txnFailure]) > maxTxnOps {
		q.invalid = rpctypes.ErrGRPCTooManyOps
		return nil
	}
	if n := count[txnCompare]; n > 0 {
		q.req.Compares = make([]mvcc.Compare, 0, n)
	}
	ops := make([]mvcc.Op, count[txnSuccess]+count[txnFailure]) // of both branches, in one piece
	q.req.Then = ops[:0:count[txnSuccess]]
	q.req.Else = ops[count[txnSuccess]:count[txnSuccess]]
	if err := q.parseParts(b); err != nil || q.invalid != nil {
		return err
	}
	if changesTwice(q.req.Then) || changesTwice(q.req.Else) {
		q.invalid = rpctypes.ErrGRPCDuplicateKey
	}
	return nil
}

// parseParts reads compares and operations. What is invalid is told of in the
// order in which etcd finds it: compares, then one branch, then the other.
func (q *txnQuestion) parseParts(b []byte) error {
	var invalid [4]error
	f := fields{b: b}
	for f.next() {
		var bad, err error
		switch {
		case f.length(txnCompare):
			q.req.Compares = append(q.req.Compares, mvcc.Compare{})
			bad, err = parseCompare(&q.req.Compares[len(q.req.Compares)-1], f.sub)
		case f.length(txnSuccess):
			q.req.Then = append(q.req.Then, mvcc.Op{})
			bad, err = q.parseOp(&q.req.Then[len(q.req.Then)-1], f.sub)
		case f.length(txnFailure):
			q.req.Else = append(q.req.Else, mvcc.Op{})
			bad, err = q.parseOp(&q.req.Else[len(q.req.Else)-1], f.sub)
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
			q.invalid = bad
			break
		}
	}
	return nil
}

// parseOp reads a RequestOp. Were it to hold several operations, the last
// counts, and one that is there in parts is put together.
func (q *txnQuestion) parseOp(op *mvcc.Op, b []byte) (invalid, err error) {
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
	q.local = q.local && local
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

// parseCompare reads a Compare. With a value that is not of its target, it
// compares with zero, as etcd does.
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

// changesTwice says whether one key could be changed by two of the
// operations; two deletes may overlap. etcd refuses that in either branch,
// whichever is taken.
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
