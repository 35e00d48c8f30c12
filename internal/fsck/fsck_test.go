package fsck_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/xbernetes/xbernetes/internal/fsck"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/record"
	"github.com/xbernetes/xbernetes/internal/replica"
	"github.com/xbernetes/xbernetes/internal/snapshot"
)

// serve runs a replica on store until the test ends, or stop is called.
func serve(t *testing.T, store journal.Store, policy snapshot.Policy) (r *replica.Replica, stop func()) {
	t.Helper()
	r = replica.New(replica.Config{
		Store:     store,
		Notifier:  notify.NewPolling(2*time.Millisecond, 20*time.Millisecond),
		Logger:    slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Snapshots: policy, CompressFrom: 512,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-r.Ready():
	case err := <-ended:
		t.Fatalf("replica ended before it was ready: %v", err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("replica ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return r, stop
}

func propose(t *testing.T, r *replica.Replica, req *mvcc.Request) mvcc.Result {
	t.Helper()
	res, err := r.Propose(t.Context(), req)
	if err != nil {
		t.Fatalf("propose: %v", err)
	}
	return res
}

// load writes something of every kind.
func load(t *testing.T, r *replica.Replica, n int) {
	t.Helper()
	lease := mvcc.LeaseID(0x7000)
	propose(t, r, &mvcc.Request{Kind: mvcc.LeaseGrant, Lease: lease, TTL: 3600})
	for i := range n {
		key := fmt.Sprintf("/registry/thing/%d", i%23)
		switch {
		case i%97 == 96:
			propose(t, r, &mvcc.Request{Kind: mvcc.Compact, Revision: r.View().Revision() - 20})
		case i%31 == 30:
			propose(t, r, &mvcc.Request{Kind: mvcc.Txn, Then: []mvcc.Op{{Kind: mvcc.OpDelete, Range: mvcc.KeyRange{Key: key}}}})
		case i%13 == 12:
			req := put(key, strings.Repeat("long ", 200))
			req.Then[0].Lease = lease
			propose(t, r, req)
		default:
			propose(t, r, put(key, fmt.Sprint("value ", i)))
		}
	}
}

func check(t *testing.T, store journal.Store, opts fsck.Options) *fsck.Report {
	t.Helper()
	report, err := fsck.Check(t.Context(), store, opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func text(t *testing.T, r *fsck.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCheckAgreesWithReplicas holds the outcome against that of two replicas,
// which took snapshots at slots that the check guesses, or does not guess.
func TestCheckAgreesWithReplicas(t *testing.T) {
	policy := snapshot.Policy{EveryBytes: 6 << 10}
	for name, guess := range map[string]snapshot.Policy{"guessed": policy, "read twice": {}} {
		t.Run(name, func(t *testing.T) {
			store := memlog.New(memlog.Options{})
			a, stop := serve(t, store.Open(), policy)
			b, _ := serve(t, store.Open(), policy)
			for rounds := 0; check(t, store.Open(), fsck.Options{}).Marks < 5; rounds++ {
				if rounds == 100 {
					t.Fatal("the replicas do not take snapshots")
				}
				load(t, a, 60)
			}
			load(t, b, 120)
			stop()
			var phases map[fsck.Phase]journal.Slot
			var report *fsck.Report
			var slot journal.Slot
			var hash [32]byte
			for report == nil || report.LastSlot < slot { // b may be about to mark a snapshot
				phases = map[fsck.Phase]journal.Slot{}
				report = check(t, store.Open(), fsck.Options{Policy: guess, Progress: func(p fsck.Progress) {
					phases[p.Phase] = max(phases[p.Phase], p.Slot)
				}})
				if _, err := b.Linearizable(t.Context()); err != nil {
					t.Fatal(err)
				}
				var err error
				if slot, hash, err = b.Hash(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if report.LastSlot != slot || [32]byte(report.StateHash) != hash || report.ExitCode() != 0 {
				t.Errorf("the replica is at slot %d with hash %x; the check says:\n%s", slot, hash, text(t, report))
			}
			if report.UncheckedMarks+report.Errors+report.Warnings != 0 || report.Compacted == 0 {
				t.Errorf("a sound journal:\n%s", text(t, report))
			}
			verified := func(s fsck.Snapshot) bool { return s.Status == fsck.Verified }
			if len(report.Snapshots) < 1 || !slices.ContainsFunc(report.Snapshots, verified) {
				t.Errorf("snapshots %v: want them verified", report.Snapshots)
			}
			if phases[fsck.PhaseSlots] != slot || phases[fsck.PhaseSnapshots] == 0 {
				t.Errorf("progress ended at %v, want slot %d", phases, slot)
			}
			if again := phases[fsck.PhaseMarks] > 0; !again && name == "read twice" { // a guess may be wrong
				t.Errorf("slots were not read again")
			}
		})
	}
}

// TestCheckBesideServers checks again and again while servers write, snapshot,
// and drop snapshots.
func TestCheckBesideServers(t *testing.T) {
	policy := snapshot.Policy{EveryBytes: 2 << 10}
	store := memlog.New(memlog.Options{})
	r, _ := serve(t, store.Open(), policy)
	done := make(chan struct{})
	go func() {
		defer close(done)
		load(t, r, 400)
	}()
	for going := true; going; {
		select {
		case <-done:
			going = false
		default:
		}
		report := check(t, store.Open(), fsck.Options{Policy: policy})
		if report.Errors+report.Warnings > 0 {
			t.Fatalf("a sound journal that is written:\n%s", text(t, report))
		}
	}
}

// deleting is a store in which a running server deletes the blobs of an old snapshot, one after
// each listing, without its manifest, which went first.
type deleting struct {
	*shaped
	left []string
}

func (d *deleting) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	names, err := d.shaped.ListBlobs(ctx, prefix)
	if len(d.left) > 0 {
		err = errors.Join(err, d.DeleteBlob(ctx, d.left[0]))
		d.left = d.left[1:]
	}
	return names, err
}

// TestSnapshotIsBeingDeleted: the blobs of a snapshot that a running server is deleting are not
// reported as left over.
func TestSnapshotIsBeingDeleted(t *testing.T) {
	b := newBench(t)
	d := &deleting{shaped: b.store}
	for i := range 5 {
		name := fmt.Sprintf("snapshot/%020d/%064d", 0, i)
		b.putBlob(name, []byte("part"))
		d.left = append(d.left, name)
	}
	b.batch(7, put("k", "v"))
	b.snapshot(1)
	if report := check(t, d, fsck.Options{}); report.Errors+report.Warnings > 0 || len(report.Snapshots) != 1 {
		t.Errorf("while a snapshot is deleted:\n%s", text(t, report))
	}
}

// TestLateRecord: a record whose anchor is too far back is void, and no more.
func TestLateRecord(t *testing.T) {
	b := newBench(t)
	h := b.header(7, record.Batch)
	late := record.Append(nil, &h, mvcc.AppendRequests(nil, []*mvcc.Request{put("late", "x")}), false)
	for range record.AnchorSpan {
		b.append([]byte("void"))
	}
	b.append(late)
	report := check(t, b.store, fsck.Options{})
	if report.Errors != 0 || report.Void["foreign"] != 1 || report.Void["malformed"] != record.AnchorSpan {
		t.Errorf("a late record:\n%s", text(t, report))
	}
	if len(report.Findings) != 20 || report.Omitted[fsck.VoidRecord] != record.AnchorSpan+1-20 {
		t.Errorf("%d findings are listed and %v are not", len(report.Findings), report.Omitted)
	}
	// It would be no better if it had been in time.
	h.AnchorChain[0] ^= 1
	b = newBench(t)
	for range record.AnchorSpan - 1 {
		b.append([]byte("void"))
	}
	b.append(record.Append(nil, &h, nil, false))
	if report = check(t, b.store, fsck.Options{}); report.Errors != 1 {
		t.Errorf("a record of another history:\n%s", text(t, report))
	}
	// One slot earlier it would have been in time.
	b = newBench(t)
	for range record.AnchorSpan - 1 {
		b.append([]byte("void"))
	}
	b.append(late)
	if report = check(t, b.store, fsck.Options{}); report.Batches != 1 {
		t.Errorf("a record in time:\n%s", text(t, report))
	}
}

// TestFillers: batches with nothing in them have no number, and are no copies of
// one another.
func TestFillers(t *testing.T) {
	b := newBench(t)
	h := b.header(7, record.Batch)
	h.Number = 0
	for range 2 {
		b.append(record.Append(nil, &h, mvcc.AppendRequests(nil, nil), false))
	}
	if report := check(t, b.store, fsck.Options{}); report.Batches != 2 || report.VoidRecords != 0 {
		t.Errorf("two batches that fill slots:\n%s", text(t, report))
	}
	b.append(record.Append(nil, &h, mvcc.AppendRequests(nil, []*mvcc.Request{put("k", "v")}), false))
	if report := check(t, b.store, fsck.Options{}); report.Batches != 2 || report.Void["seen-before"] != 1 {
		t.Errorf("a batch without a number that has something in it:\n%s", text(t, report))
	}
}

// TestReplacedSlot: a record that was replaced by another, whole one leaves
// those behind it void, and that is an error.
func TestReplacedSlot(t *testing.T) {
	b := newBench(t)
	b.batch(1, put("a", "1"))
	b.batch(1, put("a", "2"))
	b.batch(1, put("a", "3"))
	b.batch(1, put("a", "4"))
	var recs [][]byte
	for slot := range journal.Slot(4) {
		got, err := b.store.Read(t.Context(), slot+1, 1)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, got...)
	}
	h, _, err := record.Parse(recs[1])
	if err != nil {
		t.Fatal(err)
	}
	recs[1] = record.Append(nil, &h, mvcc.AppendRequests(nil, []*mvcc.Request{put("a", "forged")}), false)
	c := newBench(t)
	for _, rec := range recs {
		c.append(rec)
	}
	report := check(t, c.store, fsck.Options{})
	if report.Errors != 2 || report.Findings[0].Code != fsck.OtherHistory || report.Findings[0].Slot != 3 || report.ExitCode() != 1 {
		t.Errorf("a replaced slot:\n%s", text(t, report))
	}
}

func TestInterrupted(t *testing.T) {
	b := newBench(t)
	b.batch(1, put("a", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report, err := fsck.Check(ctx, b.store, fsck.Options{})
	if !errors.Is(err, context.Canceled) || report.ExitCode() != 2 {
		t.Errorf("error %v, exit code %d", err, report.ExitCode())
	}
}

// TestUnlistedBlobs: if there are more blobs than one listing returns, the report says so,
// and the snapshots are looked at all the same.
func TestUnlistedBlobs(t *testing.T) {
	store := memlog.New(memlog.Options{})
	r, stop := serve(t, store.Open(), snapshot.Policy{EveryBytes: 4 << 10})
	for r.Counts().Snapshots.Stored.Load() == 0 { // it is stored beside the writes
		load(t, r, 100)
	}
	stop()
	before := check(t, store.Open(), fsck.Options{})
	found := func(r *fsck.Report) bool {
		return slices.ContainsFunc(r.Findings, func(f fsck.Finding) bool { return f.Code == fsck.UnlistedBlobs })
	}
	if found(before) || len(before.Snapshots) == 0 {
		t.Fatalf("of a journal with %d snapshots the report says\n%s", len(before.Snapshots), text(t, before))
	}
	for _, names := range []string{"zz/one/%05d", "zz/%05d/each"} { // one folder of all, and one of each
		for i := range journal.MaxListed + 1 {
			if err := store.Open().PutBlob(t.Context(), fmt.Sprintf(names, i), nil); err != nil {
				t.Fatal(err)
			}
		}
		report := check(t, store.Open(), fsck.Options{})
		if !found(report) || report.Warnings == 0 {
			t.Errorf("with %d blobs in %s, no word of those that are not listed", journal.MaxListed+1, names)
		}
		if len(report.Snapshots) != len(before.Snapshots) {
			t.Errorf("%d of %d snapshots were looked at", len(report.Snapshots), len(before.Snapshots))
		}
	}
}

func TestUnopened(t *testing.T) {
	damaged := fsck.Unopened(fmt.Errorf("segment 1: %w\n\x1b[2J", journal.ErrCorrupt))
	if damaged.ExitCode() != 1 || strings.ContainsRune(text(t, damaged), '\x1b') {
		t.Errorf("exit code %d of\n%s", damaged.ExitCode(), text(t, damaged))
	}
	if away := fsck.Unopened(errors.New("connection refused")); away.ExitCode() != 2 {
		t.Errorf("exit code %d of\n%s", away.ExitCode(), text(t, away))
	}
}

// TestJSONNames pins the names, which programs rely on.
func TestJSONNames(t *testing.T) {
	b, err := json.Marshal(fsck.Unopened(journal.ErrCorrupt))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"applied":[],"incomplete":"the journal could not be opened","lastSlot":0,"revision":0,"compacted":0,"keys":0,` +
		`"stateBytes":0,"leases":0,"records":0,"bytes":0,"batches":0,"floors":0,"marks":0,"uncheckedMarks":0,"voidRecords":0,` +
		`"void":{},"requests":{},"failedRequests":0,"writers":[],"snapshots":[],` +
		`"findings":[{"severity":"error","code":"unopenable","message":"journal is corrupt"}],"errors":1,"warnings":0}`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDumpFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.batch(1, put("a", "1"))
		ctx, cancel := context.WithCancel(context.Background())
		var out bytes.Buffer // written by the goroutine while this one sleeps
		ended := make(chan error)
		go func() { ended <- fsck.Dump(ctx, b.store, &out, fsck.DumpOptions{Follow: true}) }()
		synctest.Wait()
		if got := strings.Count(out.String(), "\n"); got != 1 {
			t.Errorf("%d lines before the second record", got)
		}
		b.batch(1, put("b", "2"))
		time.Sleep(2 * time.Second) // of the bubble's clock
		synctest.Wait()
		if got := strings.Count(out.String(), "\n"); got != 2 {
			t.Errorf("%d lines after the second record", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestDumpHidesValues looks for a value in everything that is printed unasked.
func TestDumpHidesValues(t *testing.T) {
	b := newBench(t)
	req := put("/registry/secrets/a", "hunter2")
	req.Compares = []mvcc.Compare{{Range: mvcc.KeyRange{Key: "/registry/secrets/a"}, Target: mvcc.TargetValue, Value: []byte("hunter1")}}
	b.batch(1, req)
	b.batch(1, put("/registry/secrets/b", "hunter3"))
	for _, format := range []fsck.Format{fsck.Text, fsck.JSON} {
		for _, values := range []bool{false, true} {
			var out bytes.Buffer
			if err := fsck.Dump(t.Context(), b.store, &out, fsck.DumpOptions{Format: format, Values: values}); err != nil {
				t.Fatal(err)
			}
			shown := bytes.Contains(out.Bytes(), []byte("hunter")) || bytes.Contains(out.Bytes(), []byte("aHVudGVy"))
			if shown != values {
				t.Errorf("%s, values %v:\n%s", format, values, out.String())
			}
		}
	}
}

func TestDumpLine(t *testing.T) {
	b := newBench(t)
	var requests []*mvcc.Request
	for i := range 20 {
		requests = append(requests, put(fmt.Sprint("k", i), "v"))
	}
	b.batch(1, requests...)
	for most, want := range map[int]string{0: "| and 12 more", 19: "| and 1 more", 20: "| put k19 (1 B)", -1: "| put k19 (1 B)"} {
		var out bytes.Buffer
		if err := fsck.Dump(t.Context(), b.store, &out, fsck.DumpOptions{Requests: most}); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(out.String(), want+"\n") {
			t.Errorf("at most %d requests: %s", most, out.String())
		}
	}
}

func TestFirstAndLast(t *testing.T) {
	for n := range journal.Slot(20) {
		for trim := journal.Slot(1); trim <= n+1; trim++ {
			b := newBench(t)
			for range n {
				b.append([]byte("x"))
			}
			if _, err := b.store.Trim(t.Context(), trim); err != nil {
				t.Fatal(err)
			}
			first, err := fsck.First(t.Context(), b.store)
			if err != nil || first != trim {
				t.Errorf("%d slots trimmed below %d: first is %d (%v)", n, trim, first, err)
			}
			last, err := fsck.Last(t.Context(), b.store)
			if err != nil || last != n {
				t.Errorf("%d slots trimmed below %d: last is %d (%v)", n, trim, last, err)
			}
		}
	}
}

// FuzzRecord: whatever a slot holds, it is judged and printed.
func FuzzRecord(f *testing.F) {
	b := newBench(f)
	h := b.header(1, record.Batch)
	for _, requests := range [][]*mvcc.Request{nil, {put("a", "1")}, {swap("a", 1, "2"), {Kind: mvcc.LeaseGrant, Lease: 5, TTL: 1}}} {
		f.Add(mvcc.AppendRequests(nil, requests), byte(record.Batch), false)
		f.Add(record.Append(nil, &h, mvcc.AppendRequests(nil, requests), true), byte(0), true)
	}
	f.Add(record.SnapshotMark{Slot: 1}.Append(nil), byte(record.Snapshot), false)
	f.Add(record.FloorMark{Slot: 1}.Append(nil), byte(record.Floor), false)
	f.Fuzz(func(t *testing.T, data []byte, kind byte, whole bool) {
		b := newBench(t)
		b.batch(1, put("a", "1"))
		if !whole { // data is a body
			h := b.header(1, record.Kind(kind))
			data = record.Append(nil, &h, data, false)
		}
		if err := b.store.Append(t.Context(), 2, data); err != nil {
			t.Skip(err)
		}
		report := check(t, b.store, fsck.Options{})
		if report.LastSlot != 2 || report.Records != 2 {
			t.Errorf("checked:\n%s", text(t, report))
		}
		for _, format := range []fsck.Format{fsck.Text, fsck.JSON} {
			var out bytes.Buffer
			if err := fsck.Dump(t.Context(), b.store, &out, fsck.DumpOptions{Format: format, Values: true, Requests: -1}); err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(out.Bytes(), []byte("\n")); n != 2 {
				t.Errorf("%d lines:\n%s", n, out.String())
			}
		}
	})
}
