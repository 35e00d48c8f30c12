package fsck

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// The words for the numbers in a record.
var (
	requestKinds   = [...]string{mvcc.Txn: "txn", mvcc.Compact: "compact", mvcc.LeaseGrant: "lease-grant", mvcc.LeaseRevoke: "lease-revoke", mvcc.LeaseRenew: "lease-renew", mvcc.LeaseExpire: "lease-expire"}
	recordKinds    = [...]string{record.Batch: "batch", record.Floor: "floor", record.Snapshot: "snapshot"}
	opKinds        = [...]string{mvcc.OpRange: "get", mvcc.OpPut: "put", mvcc.OpDelete: "delete"}
	compareTargets = [...]string{mvcc.TargetVersion: "version", mvcc.TargetCreate: "create", mvcc.TargetMod: "mod", mvcc.TargetValue: "value", mvcc.TargetLease: "lease"}
	compareResults = [...]string{mvcc.Equal: "=", mvcc.Greater: ">", mvcc.Less: "<", mvcc.NotEqual: "!="}
)

func kindName(k mvcc.RequestKind) string { return requestKinds[k] }

// defaultRequests is how many requests a line of text tells of.
const defaultRequests = 8

// appendText appends the record's line: slot, writer, batch number, kind, and
// what it says.
func (e *entry) appendText(dst []byte, opts DumpOptions) []byte {
	w := textWriter{b: dst, values: opts.Values}
	if e.bad != nil {
		w.printf("%10d  %-8s  %6s  %-8s  ", e.slot, "-", "-", e.verdict())
		if e.size > 0 {
			w.printf("%s: ", size(int64(e.size)))
		}
		w.printf("%s", printable(e.bad.Error()))
		return w.b
	}
	w.printf("%10d  %s  %6d  %-8s  ", e.slot, WriterID(e.head.Writer).String()[:8], e.head.Number, recordKinds[e.head.Kind])
	if name := opts.Names[e.head.Writer]; name != "" {
		w.printf("by %s: ", printable(name))
	}
	switch e.head.Kind {
	case record.Snapshot:
		w.printf("of slot %d, hash %s", e.mark.Slot, Hash(e.mark.Hash).short())
	case record.Floor:
		w.printf("below slot %d", e.floor)
	default:
		w.printf("%s: ", size(int64(e.size)))
		w.requests(e.requests, opts.Requests)
	}
	return w.b
}

// verdict returns the word for a bad record.
func (e *entry) verdict() string {
	if errors.Is(e.bad, journal.ErrCorrupt) {
		return "corrupt"
	}
	return "void"
}

type textWriter struct {
	b      []byte
	values bool
}

func (w *textWriter) printf(format string, args ...any) { w.b = fmt.Appendf(w.b, format, args...) }

func (w *textWriter) requests(requests []mvcc.Request, most int) {
	if most == 0 {
		most = defaultRequests
	}
	if most < 0 || most > len(requests) {
		most = len(requests)
	}
	for i := range requests[:most] {
		if i > 0 {
			w.printf(" | ")
		}
		w.request(&requests[i])
	}
	if n := len(requests) - most; n > 0 {
		w.printf(" | and %d more", n)
	}
	if len(requests) == 0 {
		w.printf("no request")
	}
}

func (w *textWriter) request(r *mvcc.Request) {
	switch r.Kind {
	case mvcc.Txn:
		w.txn(r)
	case mvcc.Compact:
		w.printf("compact to %d", r.Revision)
	case mvcc.LeaseGrant:
		w.printf("lease-grant %s, %d s", leaseName(r.Lease), r.TTL)
	case mvcc.LeaseExpire:
		w.printf("lease-expire %s, of slot %d", leaseName(r.Lease), r.Since)
	default:
		w.printf("%s %s", kindName(r.Kind), leaseName(r.Lease))
	}
}

func leaseName(id mvcc.LeaseID) string { return strconv.FormatUint(uint64(id), 16) }

func (w *textWriter) txn(r *mvcc.Request) {
	if len(r.Compares) > 0 {
		w.printf("if ")
		for i := range r.Compares {
			if i > 0 {
				w.printf(" and ")
			}
			w.compare(&r.Compares[i])
		}
		w.printf(": ")
	}
	w.ops(r.Then)
	if len(r.Else) > 0 {
		w.printf("; else: ")
		w.ops(r.Else)
	}
}

func (w *textWriter) compare(c *mvcc.Compare) {
	w.printf("%s(%s) %s ", compareTargets[c.Target], rangeName(c.Range), compareResults[c.Result])
	switch c.Target {
	case mvcc.TargetValue:
		w.value(c.Value)
	case mvcc.TargetLease:
		w.printf("%s", leaseName(mvcc.LeaseID(c.Int)))
	default:
		w.printf("%d", c.Int)
	}
}

func (w *textWriter) ops(ops []mvcc.Op) {
	if len(ops) == 0 {
		w.printf("nothing")
	}
	for i := range ops {
		if i > 0 {
			w.printf(", ")
		}
		w.op(&ops[i])
	}
}

func (w *textWriter) op(op *mvcc.Op) {
	w.printf("%s %s", opKinds[op.Kind], rangeName(op.Range))
	if op.Kind != mvcc.OpPut {
		if op.Read.Limit > 0 {
			w.printf(" limit %d", op.Read.Limit)
		}
		return
	}
	w.printf(" ")
	if op.IgnoreValue {
		w.printf("(keeps its value)")
	} else {
		w.value(op.Value)
	}
	if op.Lease != 0 {
		w.printf(" lease %s", leaseName(op.Lease))
	}
}

func (w *textWriter) value(v []byte) {
	if w.values {
		w.b = strconv.AppendQuote(w.b, string(v))
		return
	}
	w.printf("(%s)", size(int64(len(v))))
}

func rangeName(r mvcc.KeyRange) string {
	switch {
	case r.Single():
		return keyName(r.Key)
	case r.End == mvcc.FromKey:
		return "[" + keyName(r.Key) + ", end)"
	}
	return "[" + keyName(r.Key) + ", " + keyName(r.End) + ")"
}

// keyName returns a key as text, quoted if it holds other than plain characters.
func keyName(key string) string {
	plain := key != "" && utf8.ValidString(key) && !strings.ContainsFunc(key, func(r rune) bool {
		return !unicode.IsPrint(r) || r == ' ' || strings.ContainsRune(`"',;|()[]`, r)
	})
	if plain {
		return key
	}
	return strconv.Quote(key)
}

// printable returns s on one line, without characters that a terminal acts on.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return utf8.RuneError
		}
		return r
	}, s)
}
