package mvcc

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// TestTranscripts plays testdata/transcripts, each from an empty state.
//
//	apply [writer=1] [number=…]  the next slot: a batch, a request a line
//	skip                         the next slot: a record that changes nothing
//	read [view=…]                reads, one a line
//	view name=…                  keeps the view of now under a name
//	changes from=… to=…          what a watch would see
//	history                      every version that is held
//	leases
//	prune [limit=…]
//	snapshot                     goes on with the state that a snapshot gives
//
// A request is `put k=v`, `get R`, `del R`, `txn if C, … then OP, … else OP, …`,
// `compact N`, `grant L ttl=N`, `renew L`, `revoke L` or `expire L since=N`,
// where R is a key, [from,to) or [from,). `go test -rewrite` writes the answers.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p := player{state: New(), numbers: map[WriterID]BatchNumber{}, views: map[string]*View{}}
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				p.t = t
				return p.play(d)
			})
		})
	}
}

type player struct {
	t       *testing.T
	state   *State
	numbers map[WriterID]BatchNumber
	views   map[string]*View
	out     strings.Builder
}

func (p *player) printf(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

func (p *player) play(d *datadriven.TestData) string {
	p.out.Reset()
	arg := func(name string, or int64) int64 {
		if d.HasArg(name) {
			d.ScanArgs(p.t, name, &or)
		}
		return or
	}
	switch d.Cmd {
	case "apply":
		p.apply(WriterID(arg("writer", 1)), BatchNumber(arg("number", -1)), d.Input)
	case "skip":
		p.state.Skip(p.state.Slot() + 1)
	case "read":
		v := p.state.View()
		if d.HasArg("view") {
			var name string
			d.ScanArgs(p.t, "view", &name)
			v = p.views[name]
		}
		for line := range strings.Lines(d.Input) {
			p.read(v, strings.TrimSpace(line))
		}
	case "view":
		var name string
		d.ScanArgs(p.t, "name", &name)
		p.views[name] = p.state.View()
	case "changes":
		p.changes(Revision(arg("from", 0)), Revision(arg("to", int64(p.state.Revision()))))
	case "history":
		p.history()
	case "leases":
		p.leases()
	case "prune":
		if p.state.Prune(int(arg("limit", 1000))) {
			p.printf("more to do")
		}
	case "snapshot":
		p.snapshot()
	default:
		d.Fatalf(p.t, "unknown command %s", d.Cmd)
	}
	if p.out.Len() == 0 {
		return "ok\n"
	}
	return p.out.String()
}

func (p *player) apply(w WriterID, n BatchNumber, input string) {
	if n == BatchNumber(1<<64-1) {
		n = p.numbers[w] + 1
	}
	p.numbers[w] = max(p.numbers[w], n)
	b := &Batch{Writer: w, Number: n}
	lines := slices.Collect(strings.Lines(input))
	for _, line := range lines {
		b.Requests = append(b.Requests, p.request(strings.TrimSpace(line)))
	}
	slot := p.state.Slot() + 1
	results := p.state.Apply(slot, b, true)
	if results == nil {
		p.printf("slot %d: void", slot)
		return
	}
	for i, res := range results {
		line := strings.TrimSpace(lines[i])
		switch {
		case res.Err != nil:
			p.printf("%s => error: %v", line, res.Err)
			continue
		case b.Requests[i].Kind == Txn && len(b.Requests[i].Compares) > 0:
			branch := "else"
			if res.Succeeded {
				branch = "then"
			}
			p.printf("%s => %s, revision %d", line, branch, res.Revision)
		default:
			p.printf("%s => revision %d", line, res.Revision)
		}
		for _, op := range res.Ops {
			switch op.Kind {
			case OpRange:
				p.answer(op.Read)
			case OpDelete:
				p.printf("  deleted %d", op.Deleted)
			}
			for _, kv := range op.Prev {
				p.printf("  was %s", show(kv))
			}
		}
	}
}

func (p *player) read(v *View, line string) {
	op := p.op("get " + line)
	res, err := v.Read(op.Range, op.Read)
	if err != nil {
		p.printf("%s => error: %v", line, err)
		return
	}
	p.printf("%s =>", line)
	p.answer(res)
}

func (p *player) answer(r ReadResult) {
	for _, kv := range r.KVs {
		p.printf("  %s", show(kv))
	}
	more := ""
	if r.More {
		more = ", more"
	}
	p.printf("  count %d%s", r.Count, more)
}

func show(kv *KV) string {
	if !kv.Live() {
		return fmt.Sprintf("%s deleted (mod %d)", kv.Key, kv.Mod)
	}
	s := fmt.Sprintf("%s=%s (create %d, mod %d, version %d", kv.Key, kv.Value, kv.Create, kv.Mod, kv.Version)
	if kv.Lease != 0 {
		s += fmt.Sprintf(", lease %d", kv.Lease)
	}
	return s + ")"
}

func (p *player) changes(from, to Revision) {
	changes, err := p.state.View().Changes(from, to)
	if err != nil {
		p.printf("error: %v", err)
	}
	for _, c := range changes {
		before := ""
		if c.Prev != nil {
			before = ", before it " + show(c.Prev)
		}
		p.printf("%d: %s%s", c.KV.Mod, show(c.KV), before)
	}
}

func (p *player) history() {
	v := p.state.View()
	p.printf("slot %d, revision %d, compacted %d, %d bytes", v.Slot(), v.Revision(), v.Compacted(), p.state.Bytes())
	v.root.Ascend(KeyRange{End: FromKey}, func(head *KV) bool {
		for kv := head; kv != nil; kv = kv.Prev() {
			p.printf("%s", show(kv))
		}
		return true
	})
}

func (p *player) leases() {
	var ids []LeaseID
	p.state.Leases(func(id LeaseID, _ int64, _ journal.Slot) { ids = append(ids, id) })
	slices.Sort(ids)
	for _, id := range ids {
		ttl, since, keys, _ := p.state.Lease(id)
		p.printf("lease %d: ttl %d, since slot %d, keys %q", id, ttl, since, keys)
	}
	if len(ids) == 0 {
		p.printf("none")
	}
}

func (p *player) snapshot() {
	before := parts(p.t, p.state)
	p.state = mustThaw(p.t, before)
	sameParts(p.t, "thawed", parts(p.t, p.state), before)
	size := 0
	for _, b := range before {
		size += len(b)
	}
	p.printf("%d parts, %d bytes", len(before), size)
}

// What follows reads the language of the transcripts.

func (p *player) number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) request(line string) Request {
	verb, rest, _ := strings.Cut(line, " ")
	first, options, _ := strings.Cut(rest, " ")
	_, option, _ := strings.Cut(options, "=")
	switch verb {
	case "txn":
		return p.txn(rest)
	case "compact":
		return Request{Kind: Compact, Revision: Revision(p.number(rest))}
	case "grant":
		return Request{Kind: LeaseGrant, Lease: LeaseID(p.number(first)), TTL: p.number(option)}
	case "renew":
		return Request{Kind: LeaseRenew, Lease: LeaseID(p.number(rest))}
	case "revoke":
		return Request{Kind: LeaseRevoke, Lease: LeaseID(p.number(rest))}
	case "expire":
		return Request{Kind: LeaseExpire, Lease: LeaseID(p.number(first)), Since: journal.Slot(p.number(option))}
	}
	return Request{Kind: Txn, Then: []Op{p.op(line)}}
}

func (p *player) txn(s string) Request {
	r := Request{Kind: Txn}
	s, otherwise, _ := strings.Cut(" "+s+" ", " else ")
	s, then, _ := strings.Cut(s+" ", " then ")
	if _, cond, ok := strings.Cut(s, " if "); ok {
		for _, c := range strings.Split(cond, ", ") {
			r.Compares = append(r.Compares, p.compare(strings.TrimSpace(c)))
		}
	}
	r.Then, r.Else = p.ops(then), p.ops(otherwise)
	return r
}

func (p *player) ops(s string) (ops []Op) {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	for _, o := range strings.Split(s, ", ") {
		ops = append(ops, p.op(strings.TrimSpace(o)))
	}
	return ops
}

var targets = []string{"version", "create", "mod", "value", "lease"}

// compare reads `mod(a) = 2`.
func (p *player) compare(s string) Compare {
	f := strings.Fields(s)
	target, what, ok := strings.Cut(strings.TrimSuffix(f[0], ")"), "(")
	if len(f) != 3 || !ok || !slices.Contains(targets, target) {
		p.t.Fatalf("%q is no compare", s)
	}
	c := Compare{Target: CompareTarget(slices.Index(targets, target)), Result: CompareResult(slices.Index([]string{"=", ">", "<", "!="}, f[1]))}
	if c.Range = p.keyRange(what); c.Target == TargetValue {
		c.Value = []byte(f[2])
	} else {
		c.Int = p.number(f[2])
	}
	return c
}

func (p *player) keyRange(s string) KeyRange {
	if !strings.HasPrefix(s, "[") {
		return KeyRange{Key: s}
	}
	from, to, ok := strings.Cut(strings.TrimSuffix(s[1:], ")"), ",")
	if !ok {
		p.t.Fatalf("%q is no range", s)
	}
	if to == "" {
		to = FromKey
	}
	return KeyRange{Key: from, End: to}
}

func (p *player) op(s string) Op {
	f := strings.Fields(s)
	kinds := map[string]OpKind{"get": OpRange, "put": OpPut, "del": OpDelete}
	op := Op{Kind: kinds[f[0]]}
	switch op.Kind {
	case OpPut:
		key, value, _ := strings.Cut(f[1], "=")
		op.Range.Key, op.Value = key, []byte(value)
	case OpRange, OpDelete:
		op.Range = p.keyRange(f[1])
	default:
		p.t.Fatalf("%q is no operation", s)
	}
	o := &op.Read
	for _, option := range f[2:] {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "lease":
			op.Lease = LeaseID(p.number(value))
		case "prev":
			op.PrevKV = true
		case "ignore-value":
			op.IgnoreValue = true
		case "ignore-lease":
			op.IgnoreLease = true
		case "at":
			o.Revision = Revision(p.number(value))
		case "limit":
			o.Limit = p.number(value)
		case "count":
			o.CountOnly = true
		case "asc":
			o.Order = Ascend
		case "desc":
			o.Order = Descend
		case "by":
			o.Target = SortTarget(slices.Index([]string{"key", "version", "create", "mod", "value"}, value))
		case "min-mod":
			o.MinMod = Revision(p.number(value))
		case "max-mod":
			o.MaxMod = Revision(p.number(value))
		case "min-create":
			o.MinCreate = Revision(p.number(value))
		case "max-create":
			o.MaxCreate = Revision(p.number(value))
		default:
			p.t.Fatalf("%q: what is %s?", s, option)
		}
	}
	return op
}
