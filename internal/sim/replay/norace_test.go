//go:build !race

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// TestReplay: a seed does the same each time, and another seed does something else.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the simulation for another platform")
	}
	tally := func(seed uint64) string {
		var out bytes.Buffer
		if err := replay(t.Context(), &out, seed, 1); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		met := regexp.MustCompile(`\{Acked:.*\}`).FindString(out.String())
		if met == "" || strings.Contains(met, "Acked:0 ") {
			t.Fatalf("nothing happened:\n%s", out.String())
		}
		return met
	}
	first, again, other := tally(42), tally(42), tally(43)
	if first != again {
		t.Errorf("seed 42 met %s, and then %s", first, again)
	}
	if first == other {
		t.Errorf("seeds 42 and 43 both met %s", first)
	}
}
