package fsck_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/klauspost/compress/zstd"

	"github.com/xbernetes/xbernetes/internal/fsck"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// testID is the ID of every journal in the scripts.
var testID = journal.ID{0x0b, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// shaped is a store with an ID of its own, and with damage.
type shaped struct {
	journal.Store
	id      journal.ID
	corrupt map[journal.Slot]bool
	lost    map[journal.Slot]bool
	down    error // what Read answers, if set
}

func (s *shaped) Info() journal.Info {
	info := s.Store.Info()
	info.ID = s.id
	return info
}

// Read fails as a whole if it meets a corrupt record. Records behind a lost one are read
// only if the Read begins behind it.
func (s *shaped) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	recs, err := s.Store.Read(ctx, from, limit)
	if err == nil {
		err = s.down
	}
	for i := range recs {
		switch slot := from + journal.Slot(i); {
		case s.corrupt[slot]:
			return nil, fmt.Errorf("read slot %d: %w", slot, journal.ErrCorrupt)
		case s.lost[slot]:
			return recs[:i], err
		}
	}
	if err != nil {
		return nil, err
	}
	return recs, nil
}

// Peek shows the records that are there, as Read does.
func (s *shaped) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	switch {
	case s.down != nil:
		return nil, s.down
	case s.corrupt[slot]:
		return nil, fmt.Errorf("peek at slot %d: %w", slot, journal.ErrCorrupt)
	case s.lost[slot]:
		return nil, nil
	}
	return s.Store.Peek(ctx, slot)
}

// bench builds a journal record by record.
type bench struct {
	t       testing.TB
	store   *shaped
	id      journal.ID
	state   *mvcc.State
	chains  *record.Chains
	numbers map[mvcc.WriterID]mvcc.BatchNumber
	hashes  map[journal.Slot][32]byte // of the states so far; nil: not kept
}

func newBench(t testing.TB) *bench {
	return newBenchOn(t, memlog.New(memlog.Options{}).Open(), testID)
}

func newBenchOn(t testing.TB, store journal.Store, id journal.ID) *bench {
	return &bench{
		t: t, id: id,
		store: &shaped{Store: store, id: id, corrupt: map[journal.Slot]bool{}, lost: map[journal.Slot]bool{}},
		state: mvcc.New(), chains: record.NewChains(id),
		numbers: map[mvcc.WriterID]mvcc.BatchNumber{},
	}
}

func (b *bench) header(w mvcc.WriterID, kind record.Kind) record.Header {
	b.numbers[w]++
	return record.Header{Journal: b.id, Writer: w, Number: b.numbers[w], Anchor: b.chains.Slot(), AnchorChain: b.chains.Last(), Kind: kind}
}

// append appends rec, and applies it as a replica would.
func (b *bench) append(rec []byte) journal.Slot {
	slot := b.state.Slot() + 1
	if err := b.store.Append(context.Background(), slot, rec); err != nil {
		b.t.Fatal(err)
	}
	h, body, err := record.Parse(rec)
	if err == nil {
		err = b.chains.Check(b.id, &h)
	}
	b.chains.Extend(record.DigestOf(rec))
	requests, wrong := mvcc.ParseRequests(body)
	if err == nil && h.Kind == record.Batch && wrong == nil {
		b.state.Apply(slot, &mvcc.Batch{From: b.id, Writer: h.Writer, Number: h.Number, Requests: requests}, false)
	} else {
		b.state.Skip(slot)
	}
	if b.hashes != nil {
		if b.hashes[slot], err = snapshot.Hash(b.t.Context(), b.state.Freeze(), b.chains.Last()); err != nil {
			b.t.Fatal(err)
		}
	}
	return slot
}

func (b *bench) batch(w mvcc.WriterID, requests ...*mvcc.Request) journal.Slot {
	h := b.header(w, record.Batch)
	return b.append(record.Append(nil, &h, mvcc.AppendRequests(nil, requests), false))
}

func (b *bench) mark(w mvcc.WriterID, m record.SnapshotMark) journal.Slot {
	h := b.header(w, record.Snapshot)
	return b.append(record.Append(nil, &h, m.Append(nil), false))
}

// snapshot stores a snapshot of the state as it stands, under the number of a
// slot, in the layout of docs/journal-format.md.
func (b *bench) snapshot(slot journal.Slot) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer enc.Close()
	dir := fmt.Sprintf("snapshot/%020d/", slot)
	put := func(raw []byte) string {
		data := enc.EncodeAll(raw, nil)
		sum := sha256.Sum256(data)
		name := dir + hex.EncodeToString(sum[:])
		b.putBlob(name, data)
		return name
	}
	last := b.chains.Last()
	sums, parts := last[:], []string{}
	if err := b.state.Freeze().Parts(func(part []byte) error {
		sum := sha256.Sum256(part)
		sums = append(sums, sum[:]...)
		parts = append(parts, put(part))
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	hash := sha256.Sum256(sums)
	manifest, err := json.Marshal(map[string]any{
		"format": journal.FormatVersion, "journal": b.id.String(), "slot": slot,
		"hash": hex.EncodeToString(hash[:]), "chains": put(b.chains.Append(nil)), "parts": parts,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.putBlob(dir+"manifest.json", manifest)
}

func (b *bench) putBlob(name string, data []byte) {
	if err := b.store.PutBlob(context.Background(), name, data); err != nil {
		b.t.Fatal(err)
	}
}

func put(key, value string) *mvcc.Request {
	return &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpPut, Range: mvcc.KeyRange{Key: key}, Value: []byte(value)}}}
}

// swap puts value if the key is at revision mod, and reads it otherwise.
func swap(key string, mod int64, value string) *mvcc.Request {
	r := put(key, value)
	r.Compares = []mvcc.Compare{{Range: mvcc.KeyRange{Key: key}, Target: mvcc.TargetMod, Int: mod}}
	r.Else = []mvcc.Op{{Kind: mvcc.OpRange, Range: mvcc.KeyRange{Key: key}}}
	return r
}

// parse makes a request of one line of a script.
func (b *bench) parse(line string) *mvcc.Request {
	f := strings.Fields(line)
	num := func(i int) int64 {
		n, err := strconv.ParseInt(f[i], 0, 64)
		if err != nil {
			b.t.Fatal(err)
		}
		return n
	}
	switch f[0] {
	case "put":
		return put(f[1], f[2])
	case "swap":
		return swap(f[1], num(2), f[3])
	case "delete":
		r := mvcc.KeyRange{Key: f[1]}
		if len(f) > 2 {
			r.End = f[2]
		}
		return &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpDelete, Range: r}}}
	case "guess":
		r := put(f[1], f[3])
		r.Compares = []mvcc.Compare{{Range: mvcc.KeyRange{Key: f[1]}, Target: mvcc.TargetValue, Value: []byte(f[2])}}
		return r
	case "list":
		return &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpRange, Range: mvcc.KeyRange{Key: f[1], End: mvcc.FromKey}, Read: mvcc.ReadOptions{Limit: 5}}}}
	case "binary":
		return put("\xff\x00\n", "\x00\x01")
	case "grant":
		return &mvcc.Request{Kind: mvcc.LeaseGrant, Lease: mvcc.LeaseID(num(1)), TTL: num(2)}
	case "renew":
		return &mvcc.Request{Kind: mvcc.LeaseRenew, Lease: mvcc.LeaseID(num(1))}
	case "expire":
		return &mvcc.Request{Kind: mvcc.LeaseExpire, Lease: mvcc.LeaseID(num(1)), Since: journal.Slot(num(2))}
	case "attach":
		r := put(f[1], f[2])
		r.Then[0].Lease = mvcc.LeaseID(num(3))
		return r
	case "compact":
		return &mvcc.Request{Kind: mvcc.Compact, Revision: mvcc.Revision(num(1))}
	}
	b.t.Fatalf("no request: %s", line)
	return nil
}

// TestScripts runs the scripts in testdata; -rewrite writes what comes out.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		b := newBench(t)
		b.hashes = map[journal.Slot][32]byte{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			b.t = t
			return b.command(d)
		})
	})
}

func (b *bench) command(d *datadriven.TestData) string {
	writer := mvcc.WriterID(0x0a11ce0000000001)
	slot := b.state.Slot()
	if d.HasArg("writer") {
		var s string
		d.ScanArgs(b.t, "writer", &s)
		n, err := strconv.ParseUint(s, 16, 64)
		if err != nil {
			b.t.Fatal(err)
		}
		writer = mvcc.WriterID(n)
	}
	if d.HasArg("slot") {
		var n int
		d.ScanArgs(b.t, "slot", &n)
		slot = journal.Slot(n)
	}
	switch d.Cmd {
	case "new":
		*b = *newBench(b.t)
		b.hashes = map[journal.Slot][32]byte{}
		return ""
	case "batch":
		var requests []*mvcc.Request
		for line := range strings.Lines(d.Input) {
			requests = append(requests, b.parse(line))
		}
		return fmt.Sprintf("slot %d, revision %d", b.batch(writer, requests...), b.state.Revision())
	case "mark":
		m := record.SnapshotMark{Slot: slot, Hash: b.hashes[slot]}
		if d.HasArg("wrong") {
			m.Hash[0] ^= 1
		}
		return fmt.Sprintf("slot %d", b.mark(writer, m))
	case "floor":
		h := b.header(writer, record.Floor)
		return fmt.Sprintf("slot %d", b.append(record.Append(nil, &h, record.FloorMark{Slot: slot}.Append(nil), false)))
	case "void":
		return fmt.Sprintf("slot %d", b.append(b.voidRecord(d, writer, slot)))
	case "snapshot":
		b.snapshot(slot)
	case "forge": // a snapshot that is whole, of a state that never was
		f := *b
		f.state = mvcc.New()
		for n := journal.Slot(1); n < slot; n++ {
			f.state.Skip(n)
		}
		f.state.Apply(slot, &mvcc.Batch{Writer: writer, Number: 1, Requests: []mvcc.Request{*put("a", "forged")}}, false)
		f.snapshot(slot)
	case "blob":
		b.putBlob(d.CmdArgs[0].Key, []byte(d.Input))
	case "tamper": // with the only blob of that prefix that is not a manifest, or the one named
		b.tamper(d.CmdArgs[0].Key)
	case "trim":
		if _, err := b.store.Trim(context.Background(), slot); err != nil {
			b.t.Fatal(err)
		}
	case "corrupt":
		b.store.corrupt[slot] = true
	case "lose":
		b.store.lost[slot] = true
	case "check":
		return b.check(d)
	case "dump":
		opts := fsck.DumpOptions{Values: d.HasArg("values")}
		if d.HasArg("json") {
			opts.Format = fsck.JSON
		}
		if d.HasArg("slot") {
			opts.From, opts.To = slot, slot
		}
		var out bytes.Buffer
		if err := fsck.Dump(context.Background(), b.store, &out, opts); err != nil {
			fmt.Fprintln(&out, "error:", err)
		}
		return out.String()
	default:
		b.t.Fatalf("no command: %s", d.Cmd)
	}
	return ""
}

// voidRecord makes a record that is void for the reason that the script names.
func (b *bench) voidRecord(d *datadriven.TestData, writer mvcc.WriterID, slot journal.Slot) []byte {
	h := b.header(writer, record.Batch)
	body := mvcc.AppendRequests(nil, []*mvcc.Request{put("void", "x")})
	switch d.CmdArgs[0].Key {
	case "garbage":
		return []byte("this is no record at all, and yet it is longer than a record's header would be, so it is looked at: all of it")
	case "short":
		return nil
	case "flipped":
		rec := record.Append(nil, &h, body, false)
		rec[len(rec)-10] ^= 4
		return rec
	case "journal":
		h.Journal[0] ^= 0xff
	case "chain":
		h.AnchorChain[3] ^= 1
	case "anchor":
		h.Anchor = slot + 5
	case "requests":
		body = []byte{1, 99}
	case "mark":
		h.Kind, body = record.Snapshot, []byte("short")
	case "floor":
		h.Kind, body = record.Floor, []byte("short")
	case "again":
		recs, err := b.store.Read(context.Background(), slot, 1)
		if err != nil || len(recs) != 1 {
			b.t.Fatal(err, len(recs))
		}
		b.numbers[writer]-- // not used
		return recs[0]
	default:
		b.t.Fatalf("no way to be void: %s", d.CmdArgs[0].Key)
	}
	return record.Append(nil, &h, body, false)
}

func (b *bench) tamper(name string) {
	ctx := context.Background()
	if !strings.HasSuffix(name, ".json") {
		names, err := b.store.ListBlobs(ctx, name)
		if err != nil {
			b.t.Fatal(err)
		}
		name = names[0] // manifest.json sorts last
	}
	data, err := b.store.GetBlob(ctx, name)
	if err != nil {
		b.t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	b.putBlob(name, data)
}

func (b *bench) check(d *datadriven.TestData) string {
	b.store.down = nil
	if d.HasArg("down") {
		b.store.down = errors.New("connection refused")
	}
	report, err := fsck.Check(context.Background(), b.store, fsck.Options{})
	b.store.down = nil
	if (err != nil) != (report.Incomplete != "") {
		b.t.Errorf("Check returned %v, and its report says %q", err, report.Incomplete)
	}
	var out bytes.Buffer
	if d.HasArg("json") {
		enc := json.NewEncoder(&out)
		enc.SetIndent("", "  ")
		err = enc.Encode(report)
	} else {
		err = report.WriteText(&out)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return fmt.Sprintf("%sexit %d\n", out.String(), report.ExitCode())
}
