package agreement

import (
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// The parts of the cases below: this replica is writer 1, and has the hash own at slot 7.
var own, other = [32]byte{1}, [32]byte{2}

// says is a mark of a writer at slot 7.
func says(w mvcc.WriterID, hash [32]byte) Mark {
	return Mark{SnapshotMark: record.SnapshotMark{Slot: 7, Hash: hash}, Writer: w}
}

// TestJudge: what marks mean for a replica that has computed a state once, or twice with
// the same hash.
func TestJudge(t *testing.T) {
	agrees, remake := Verdict{Agreed: true}, Verdict{Remake: true}
	for _, c := range []struct {
		name  string
		once  Verdict
		twice Verdict
		marks []Mark
	}{
		{"no mark", Verdict{}, Verdict{}, nil},
		{"its own mark", agrees, agrees, []Mark{says(1, own)}},
		{"a mark of another with the same hash", agrees, agrees, []Mark{says(2, own)}},
		{"another hash", remake, Verdict{}, []Mark{says(2, other)}},
		{"another hash, of two replicas", remake, Verdict{}, []Mark{says(2, other), says(3, other)}},
		{"another hash, twice", remake, Verdict{Diverged: true}, []Mark{says(2, other), says(2, other)}},
		{"another hash, twice, against this replica alone", Verdict{Agreed: true, Remake: true}, Verdict{Agreed: true, Diverged: true},
			[]Mark{says(2, other), says(1, own), says(1, own), says(2, other)}},
		{"another hash, twice, and a replica with the same hash", Verdict{Agreed: true, Remake: true}, agrees,
			[]Mark{says(2, other), says(3, own), says(2, other)}},
		{"another hash of another slot", Verdict{}, Verdict{}, []Mark{{SnapshotMark: record.SnapshotMark{Slot: 8, Hash: other}, Writer: 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Agreement{me: 1, own: map[journal.Slot]ownHash{7: {sum: own}}}
			for _, m := range c.marks {
				a.Marked(m)
			}
			if v := a.Judge(7); v != c.once {
				t.Errorf("having computed the state once: %+v, want %+v", v, c.once)
			}
			a.Doubt(7)
			if v := a.Judge(7); v.Remake || v.Diverged || v.Agreed != c.once.Agreed {
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
