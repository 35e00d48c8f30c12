package fsck

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// The JSON form of a record. README.md explains the names, which stay.

type jsonRecord struct {
	Slot        journal.Slot      `json:"slot"`
	Bytes       int               `json:"bytes"`
	Kind        string            `json:"kind,omitempty"`
	Writer      *WriterID         `json:"writer,omitempty"`
	Server      string            `json:"server,omitempty"` // as it calls itself
	Number      *mvcc.BatchNumber `json:"number,omitempty"`
	Anchor      *journal.Slot     `json:"anchor,omitempty"`
	AnchorChain *Hash             `json:"anchorChain,omitempty"`
	BodyBytes   int               `json:"bodyBytes,omitempty"`
	Requests    []jsonRequest     `json:"requests,omitempty"`
	Snapshot    *jsonMark         `json:"snapshot,omitempty"`
	Floor       journal.Slot      `json:"floor,omitempty"`
	Void        string            `json:"void,omitempty"`
	Corrupt     string            `json:"corrupt,omitempty"`
}

type jsonMark struct {
	Slot journal.Slot `json:"slot"`
	Hash Hash         `json:"hash"`
}

type jsonRequest struct {
	Kind     string        `json:"kind"`
	Compares []jsonCompare `json:"compares,omitempty"`
	Then     []jsonOp      `json:"then,omitempty"`
	Else     []jsonOp      `json:"else,omitempty"`
	Revision mvcc.Revision `json:"revision,omitempty"`
	Lease    string        `json:"lease,omitempty"`
	TTL      int64         `json:"ttl,omitempty"`
	Since    journal.Slot  `json:"since,omitempty"`
}

// jsonKeys is a range of keys. What is not UTF-8 is in base64 instead.
type jsonKeys struct {
	Key     *string `json:"key,omitempty"`
	KeyRaw  []byte  `json:"keyBase64,omitempty"`
	End     *string `json:"end,omitempty"`
	EndRaw  []byte  `json:"endBase64,omitempty"`
	FromKey bool    `json:"fromKey,omitempty"` // every key from this one on
}

// jsonValue is a value: its length, and itself if that was asked for.
type jsonValue struct {
	ValueBytes *int    `json:"valueBytes,omitempty"`
	Value      *[]byte `json:"value,omitempty"` // base64
}

type jsonCompare struct {
	Target string `json:"target"`
	Result string `json:"result"`
	jsonKeys
	Int   *int64 `json:"int,omitempty"`
	Lease string `json:"lease,omitempty"`
	jsonValue
}

type jsonOp struct {
	Op string `json:"op"`
	jsonKeys
	jsonValue
	Lease       string `json:"lease,omitempty"`
	IgnoreValue bool   `json:"ignoreValue,omitempty"`
	IgnoreLease bool   `json:"ignoreLease,omitempty"`
	PrevKV      bool   `json:"prevKV,omitempty"`
	Limit       int64  `json:"limit,omitempty"`
	Revision    int64  `json:"revision,omitempty"`
	CountOnly   bool   `json:"countOnly,omitempty"`
	KeysOnly    bool   `json:"keysOnly,omitempty"`
}

// appendJSON appends the record's JSON object.
func (e *entry) appendJSON(dst []byte, opts DumpOptions) []byte {
	out := jsonRecord{Slot: e.slot, Bytes: e.size}
	if e.head.Kind != 0 {
		writer, chain := WriterID(e.head.Writer), Hash(e.head.AnchorChain)
		out.Kind, out.BodyBytes = recordKinds[e.head.Kind], e.body
		out.Writer, out.Number, out.Anchor, out.AnchorChain = &writer, &e.head.Number, &e.head.Anchor, &chain
		out.Server = opts.Names[e.head.Writer]
	}
	switch {
	case errors.Is(e.bad, journal.ErrCorrupt):
		out.Corrupt = e.bad.Error()
	case e.bad != nil:
		out.Void = e.bad.Error()
	case e.head.Kind == record.Snapshot:
		out.Snapshot = &jsonMark{e.mark.Slot, e.mark.Hash}
	case e.head.Kind == record.Floor:
		out.Floor = e.floor
	}
	for i := range e.requests {
		out.Requests = append(out.Requests, newJSONRequest(&e.requests[i], opts.Values))
	}
	b, err := json.Marshal(out)
	if err != nil {
		panic(fmt.Sprintf("fsck: %v", err)) // nothing in it can fail
	}
	return append(dst, b...)
}

func newJSONRequest(r *mvcc.Request, values bool) jsonRequest {
	out := jsonRequest{Kind: kindName(r.Kind), Revision: r.Revision, TTL: r.TTL, Since: r.Since}
	if r.Kind >= mvcc.LeaseGrant {
		out.Lease = leaseName(r.Lease)
	}
	for i := range r.Compares {
		c := &r.Compares[i]
		j := jsonCompare{Target: compareTargets[c.Target], Result: compareResults[c.Result], jsonKeys: newJSONKeys(c.Range)}
		switch c.Target {
		case mvcc.TargetValue:
			j.jsonValue = newJSONValue(c.Value, values)
		case mvcc.TargetLease:
			j.Lease = leaseName(mvcc.LeaseID(c.Int))
		default:
			j.Int = &c.Int
		}
		out.Compares = append(out.Compares, j)
	}
	out.Then, out.Else = newJSONOps(r.Then, values), newJSONOps(r.Else, values)
	return out
}

func newJSONOps(ops []mvcc.Op, values bool) []jsonOp {
	var out []jsonOp
	for i := range ops {
		op := &ops[i]
		j := jsonOp{
			Op: opKinds[op.Kind], jsonKeys: newJSONKeys(op.Range),
			IgnoreValue: op.IgnoreValue, IgnoreLease: op.IgnoreLease, PrevKV: op.PrevKV,
			Limit: op.Read.Limit, Revision: int64(op.Read.Revision), CountOnly: op.Read.CountOnly, KeysOnly: op.Read.KeysOnly,
		}
		if op.Lease != 0 {
			j.Lease = leaseName(op.Lease)
		}
		if op.Kind == mvcc.OpPut && !op.IgnoreValue {
			j.jsonValue = newJSONValue(op.Value, values)
		}
		out = append(out, j)
	}
	return out
}

func newJSONKeys(r mvcc.KeyRange) jsonKeys {
	var out jsonKeys
	if utf8.ValidString(r.Key) {
		out.Key = &r.Key
	} else {
		out.KeyRaw = []byte(r.Key)
	}
	switch {
	case r.End == mvcc.FromKey:
		out.FromKey = true
	case r.End != "" && utf8.ValidString(r.End):
		out.End = &r.End
	case r.End != "":
		out.EndRaw = []byte(r.End)
	}
	return out
}

func newJSONValue(v []byte, values bool) jsonValue {
	n := len(v)
	out := jsonValue{ValueBytes: &n}
	if values {
		v = append([]byte{}, v...) // not null
		out.Value = &v
	}
	return out
}
