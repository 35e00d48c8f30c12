package roster

import "testing"

// TestBoard: what is older does not replace what is newer, and listeners are told
// only if what is trusted changes.
func TestBoard(t *testing.T) {
	of := func(id string) Member {
		i := open(t, id)
		return Member{CA: i.CA.CertPEM, ServiceAccountKeys: [][]byte{i.ServiceAccountPub}}
	}
	self, other := of("self"), of("other")
	b := newBoard("self", self)
	told := 0
	b.Listen(func() { told++ })
	for _, step := range []struct {
		name     string
		revision int64
		members  map[string]Member
		keys     int
		changes  bool
	}{
		{"the server itself", 5, map[string]Member{"self": self}, 1, false},
		{"another server", 6, map[string]Member{"self": self, "other": other}, 2, true},
		{"the same, later", 7, map[string]Member{"self": self, "other": other}, 2, false},
		{"an older reading", 6, map[string]Member{"self": self}, 2, false},
		{"the other is gone", 8, nil, 1, true},
	} {
		_, changed := b.Current()
		before := told
		b.install(step.revision, step.members)
		closed := false
		select {
		case <-changed:
			closed = true
		default:
		}
		now, _ := b.Current()
		if len(now.Keys) != step.keys || closed != step.changes || (told > before) != step.changes {
			t.Errorf("%s: %d keys, changed: %t, told: %t; want %d, %t", step.name, len(now.Keys), closed, told > before, step.keys, step.changes)
		}
	}
	if revision, members := b.look(); revision != 8 || len(members) != 0 {
		t.Errorf("the board is at revision %d with %d members; want 8 and 0", revision, len(members))
	}
}
