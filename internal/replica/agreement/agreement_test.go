package agreement

import (
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// The parts of the cases below: this replica is writer 1, and has the hash own at slot 7.
var own, other, third = [32]byte{1}, [32]byte{2}, [32]byte{3}

// says is a mark of a writer at slot 7, its first one.
func says(w mvcc.WriterID, hash [32]byte) Mark {
	return Mark{SnapshotMark: record.SnapshotMark{Slot: 7, Hash: hash}, Writer: w, Number: 1}
}

// insists is the second mark of a writer at slot 7: it has made its state anew.
func insists(w mvcc.WriterID, hash [32]byte) Mark {
	m := says(w, hash)
	m.Number = 2
	return m
}

// TestJudge: what marks mean for a replica that has computed a state once, or twice with
// the same hash.
func TestJudge(t *testing.T) {
	agrees, differs := Verdict{Agreed: true}, Verdict{Claim: true, Remake: true}
	outvoted := Verdict{Agreed: true, Outvoted: true}
	for _, c := range []struct {
		name  string
		once  Verdict
		twice Verdict
		marks []Mark
	}{
		{"no mark", Verdict{}, Verdict{}, nil},
		{"its own mark", agrees, agrees, []Mark{says(1, own)}},
		{"a mark of another with the same hash", agrees, agrees, []Mark{says(2, own)}},
		{"another hash", differs, Verdict{}, []Mark{says(2, other)}},
		{"another hash, of two replicas", differs, Verdict{}, []Mark{says(2, other), says(3, other)}},
		{"another hash, and its own mark", Verdict{Agreed: true, Claim: true, Remake: true}, agrees, []Mark{says(1, own), says(2, other)}},
		{"another hash, twice, before its own second mark is in the journal", Verdict{Agreed: true, Claim: true, Remake: true}, agrees,
			[]Mark{says(1, own), says(2, other), insists(2, other)}},
		{"one against one, both sure", Verdict{}, outvoted,
			[]Mark{says(2, other), says(1, own), insists(1, own), insists(2, other)}},
		{"one against one, and then another with the same hash", Verdict{}, agrees,
			[]Mark{says(2, other), says(1, own), insists(1, own), insists(2, other), says(3, own)}},
		{"one against one, only this one sure", Verdict{}, agrees,
			[]Mark{says(2, other), says(1, own), insists(1, own)}},
		{"one against one, and the other's record landed twice", Verdict{}, agrees,
			[]Mark{says(2, other), says(2, other), says(1, own), insists(1, own)}},
		{"two against one that is sure", Verdict{}, agrees,
			[]Mark{says(2, other), says(3, own), says(1, own), insists(2, other), insists(1, own)}},
		{"alone against two, of which one is sure", Verdict{}, outvoted,
			[]Mark{says(1, own), says(2, other), says(3, other), insists(3, other), insists(1, own)}},
		{"two against two", Verdict{}, outvoted,
			[]Mark{says(1, own), says(2, other), says(3, other), says(4, own), insists(1, own), insists(3, other)}},
		{"one, against two that are sure of different hashes", Verdict{}, outvoted,
			[]Mark{says(1, own), says(2, other), says(3, third), insists(1, own), insists(3, third), insists(2, other)}},
		{"another hash of another slot", Verdict{}, Verdict{}, []Mark{{SnapshotMark: record.SnapshotMark{Slot: 8, Hash: other}, Writer: 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Agreement{me: 1, own: map[journal.Slot]ownHash{7: {sum: own}}}
			for _, m := range c.marks {
				a.Marked(m)
			}
			if v := a.Judge(7); v != c.once && c.once != (Verdict{}) {
				t.Errorf("having computed the state once: %+v, want %+v", v, c.once)
			}
			a.Said(7)
			a.Doubt(7)
			if v := a.Judge(7); v.Claim || v.Remake {
				t.Errorf("while it computes the state again: %+v", v)
			}
			a.Confirm(7, own)
			if v := a.Judge(7); v != c.twice {
				t.Errorf("having computed the state twice: %+v, want %+v", v, c.twice)
			}
			if v := a.Judge(8); v != (Verdict{}) {
				t.Errorf("of a slot whose state it has not computed: %+v", v)
			}
		})
	}
}

// TestDoubtsAreBounded: a replica doubts its state once for each other one that is against
// it, and keeps the marks of that slot however many follow.
func TestDoubtsAreBounded(t *testing.T) {
	a := New(1)
	a.Computed(7, own)
	a.Marked(says(2, other))
	if v := a.Judge(7); !v.Claim || !v.Remake {
		t.Fatalf("at the first difference: %+v", v)
	}
	a.Said(7)
	a.Doubt(7)
	a.Confirm(7, own)
	a.Marked(says(1, own))
	for i := range 3 * keptMarks {
		slot := journal.Slot(8 + i)
		a.Computed(slot, own)
		a.Marked(Mark{SnapshotMark: record.SnapshotMark{Slot: slot, Hash: other}, Writer: 2, Number: mvcc.BatchNumber(10 + i)})
		if v := a.Judge(slot); v != (Verdict{}) {
			t.Fatalf("at a later difference with the same replica: %+v", v)
		}
	}
	a.Marked(insists(1, own))
	a.Marked(insists(2, other))
	if v := a.Judge(7); !v.Outvoted {
		t.Errorf("once both are sure, after many marks: %+v", v)
	}
	a.Computed(1000, own)
	a.Marked(Mark{SnapshotMark: record.SnapshotMark{Slot: 1000, Hash: other}, Writer: 3, Number: 1})
	if v := a.Judge(1000); !v.Claim || !v.Remake {
		t.Errorf("at the first difference with a third replica: %+v", v)
	}
}

// TestNeverTwoSides: whichever of up to five replicas have which of three hashes, and
// whichever of them are sure, those that are sure and go on have the same hash.
func TestNeverTwoSides(t *testing.T) {
	hashes := [][32]byte{own, other, third}
	for code := range 6 * 6 * 6 * 6 * 6 {
		var marks []Mark
		for w := mvcc.WriterID(1); w <= 5; w, code = w+1, code/6 {
			hash := hashes[code%6/2]
			marks = append(marks, says(w, hash))
			if code%2 == 1 {
				marks = append(marks, insists(w, hash))
			}
		}
		goesOn := map[[32]byte]mvcc.WriterID{}
		for _, second := range marks {
			if second.Number != 2 {
				continue
			}
			a := New(second.Writer)
			a.Computed(7, second.Hash)
			a.Confirm(7, second.Hash)
			for _, m := range marks {
				a.Marked(m)
			}
			if v := a.Judge(7); !v.Outvoted {
				goesOn[second.Hash] = second.Writer
			}
		}
		if len(goesOn) > 1 {
			t.Fatalf("after the marks %v, replicas that are sure of different hashes go on: %v", marks, goesOn)
		}
	}
}

// TestTrusted: a snapshot replaces records only if two replicas have computed its hash
// from them, or one that is alone.
func TestTrusted(t *testing.T) {
	for _, c := range []struct {
		name         string
		own          ownHash
		marks        []Mark
		heard        mvcc.WriterID // says in a record that it agrees
		among, alone bool          // trusted among others, and alone
	}{
		{"no mark", ownHash{sum: own}, nil, 0, false, false},
		{"its own mark", ownHash{sum: own}, []Mark{says(1, own)}, 0, false, true},
		{"its own mark, and it hears itself", ownHash{sum: own}, []Mark{says(1, own)}, 1, false, true},
		{"its own mark, and another agrees", ownHash{sum: own}, []Mark{says(1, own)}, 2, true, true},
		{"a mark of another", ownHash{sum: own}, []Mark{says(2, own)}, 0, true, true},
		{"a mark of another, of a state that it loaded", ownHash{sum: own, loaded: true}, []Mark{says(2, own)}, 0, false, false},
		{"a dispute", ownHash{sum: own}, []Mark{says(2, own), says(3, other)}, 0, false, false},
	} {
		a := Agreement{me: 1, own: map[journal.Slot]ownHash{7: c.own}}
		for i, m := range c.marks {
			m.Number = mvcc.BatchNumber(i + 1)
			m.At = journal.Slot(8 + i)
			a.Marked(m)
		}
		if c.heard != 0 {
			if a.Heard(c.heard, 7) {
				t.Errorf("%s: a record that is anchored before the mark agrees with it", c.name)
			}
			if first, again := a.Heard(c.heard, 8), a.Heard(c.heard, 8); first != c.among || again {
				t.Errorf("%s: the mark is seconded: %v, and again: %v", c.name, first, again)
			}
		}
		if among, alone := a.Trusted(7, false), a.Trusted(7, true); among != c.among || alone != c.alone {
			t.Errorf("%s: trusted among others %v, alone %v; want %v, %v", c.name, among, alone, c.among, c.alone)
		}
		if got := a.NewestTrusted(false); (got == 7) != c.among {
			t.Errorf("%s: the newest trusted snapshot is that of slot %d", c.name, got)
		}
	}
}
