package blobname

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
)

func TestCheck(t *testing.T) {
	for _, name := range []string{"a", "b/c", "d/e/f", "a.b", "-", "..a", "snapshot/00000000000000000001/manifest.json"} {
		if err := Check(name); err != nil {
			t.Errorf("Check(%q) = %v", name, err)
		}
	}
	for _, name := range []string{"", "/", "/a", "a/", "a//b", "A", "a b", "ä", "a\x00", `a\b`, "a!b", ".", "..", "a/...", "a/../b"} {
		if Check(name) == nil {
			t.Errorf("Check(%q) = nil, want an error", name)
		}
	}
}

// TestListIsBounded: of too many names, whatever their order, the last are kept,
// and of a folder all or none.
func TestListIsBounded(t *testing.T) {
	const perFolder = 7
	all := make([]string, 5*journal.MaxListed)
	for i := range all {
		all[i] = fmt.Sprintf("f/%08d/%d", i/perFolder, i%perFolder)
	}
	first := len(all) - journal.MaxListed
	first += (perFolder - first%perFolder) % perFolder // to the start of a folder
	for _, order := range []string{"ascending", "descending", "random"} {
		given := slices.Clone(all)
		switch order {
		case "descending":
			slices.Reverse(given)
		case "random":
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(given), func(i, j int) { given[i], given[j] = given[j], given[i] })
		}
		var l List
		for _, name := range given {
			l.Add(name)
			if cap(l.names) > 4*journal.MaxListed {
				t.Fatalf("%s: the list holds room for %d names", order, cap(l.names))
			}
		}
		if got := l.Sorted(); !slices.Equal(got, all[first:]) {
			t.Errorf("%s: %d names from %s on are listed, want %d from %s on", order, len(got), got[0], len(all)-first, all[first])
		}
	}
}

func TestListOfFew(t *testing.T) {
	var l List
	if got := l.Sorted(); len(got) != 0 {
		t.Errorf("an empty list returns %q", got)
	}
	for _, name := range []string{"b", "a/1", "a/2", "a"} {
		l.Add(name)
	}
	if got := l.Sorted(); !slices.Equal(got, []string{"a", "a/1", "a/2", "b"}) {
		t.Errorf("Sorted = %q", got)
	}
}
