package snapshot

import "testing"

// TestSchedule: a snapshot is due after so much journal; one that no mark followed is
// due again after a quarter of that; and a mark starts the count anew.
func TestSchedule(t *testing.T) {
	s := NewSchedule(Policy{EveryBytes: 1000, RecordWeight: 10})
	until := func(state int64) (records int) {
		for !s.Due(state) {
			s.Applied(90)
			if records++; records > 1000 {
				t.Fatal("no snapshot is ever due")
			}
		}
		s.Taken()
		return records
	}
	if n := until(0); n != 10 {
		t.Errorf("the first snapshot is due after %d records, want 10", n)
	}
	if n := until(0); n != 3 { // 250 bytes, in records that weigh 100
		t.Errorf("a snapshot without a mark is due again after %d records, want 3", n)
	}
	s.Marked(7)
	if n := until(0); n != 10 {
		t.Errorf("after a mark the next snapshot is due after %d records, want 10", n)
	}
	s.Marked(7)
	if n := until(0); n != 3 {
		t.Errorf("after a second mark of the same slot the next snapshot is due after %d records, want 3", n)
	}
	s.Marked(8)
	if n := until(4000); n != 40 {
		t.Errorf("with a state of 4000 bytes the next snapshot is due after %d records, want 40", n)
	}
}

// TestMissed: a replica that had much to replay takes a snapshot early.
func TestMissed(t *testing.T) {
	s := NewSchedule(Policy{EveryBytes: 1000, RecordWeight: 10})
	s.Applied(200)
	if s.Missed(0) {
		t.Error("after 210 of 1000 bytes a snapshot counts as missed")
	}
	s.Applied(200)
	if !s.Missed(0) {
		t.Error("after 420 of 1000 bytes no snapshot counts as missed")
	}
	s.Marked(1)
	if s.Missed(0) {
		t.Error("a snapshot counts as missed right after a mark")
	}
	s.Taken()
	if !s.Missed(0) {
		t.Error("a snapshot that no mark followed does not count as missed")
	}
}
