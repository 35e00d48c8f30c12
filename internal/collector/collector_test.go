package collector

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestLook: a small busy heap gets room, a large one and one at rest Go's default, and
// never more than a part of the memory that there is.
func TestLook(t *testing.T) {
	const MiB, machine = 1 << 20, 8 << 30
	for name, test := range map[string]struct {
		memory, live uint64
		collections  uint64 // since the look before
		before, want int
	}{
		"at rest":                      {machine, 64 * MiB, 0, 100, 100},
		"one collection in a while":    {machine, 64 * MiB, 1, 100, 100},
		"busy":                         {machine, 64 * MiB, 2, 100, 200},
		"busy, small":                  {machine, 16 * MiB, 9, 100, 800},
		"busy, as large as the room":   {machine, 128 * MiB, 9, 100, 100},
		"busy, large":                  {machine, 4000 * MiB, 9, 100, 100},
		"busy, little memory":          {1 << 30, 40 * MiB, 9, 100, 160},
		"busy, less memory still":      {256 * MiB, 40 * MiB, 9, 100, 100},
		"busy, memory not known":       {0, 40 * MiB, 9, 100, 100},
		"busy before, at rest now":     {machine, 64 * MiB, 0, 200, 100},
		"grown by little":              {machine, 70 * MiB, 9, 200, 200},
		"grown by much":                {machine, 100 * MiB, 9, 200, 128},
		"grown past the room":          {machine, 130 * MiB, 9, 110, 100},
		"shrunk by much":               {machine, 32 * MiB, 9, 200, 400},
		"before the first collection":  {machine, 0, 9, 100, 100},
		"hardly anything is alive yet": {machine, 1, 9, 100, 1<<31 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := pacer{memory: test.memory, cycles: 1000, percent: test.before}
			if got := p.look(heap{live: test.live, cycles: 1000 + test.collections}); got != test.want {
				t.Errorf("the heap may grow by %d %%, want %d", got, test.want)
			}
		})
	}
}

// TestBusyIsSinceTheLastLook: collections count once.
func TestBusyIsSinceTheLastLook(t *testing.T) {
	p := pacer{memory: 8 << 30, percent: byDefault}
	for i, test := range []struct {
		cycles uint64
		want   int
	}{{50, 200}, {50, 100}, {51, 100}, {60, 200}, {62, 200}, {63, 100}} {
		if got := p.look(heap{live: 64 << 20, cycles: test.cycles}); got != test.want {
			t.Errorf("look %d, at %d collections: %d %%, want %d", i, test.cycles, got, test.want)
		}
	}
}

// TestEnvironmentWins: what the user set is left alone, and without it Go's default
// holds after Run.
func TestEnvironmentWins(t *testing.T) {
	const theirs = 77
	for _, name := range []string{"GOGC", "GOMEMLIMIT", ""} {
		t.Run("with "+name, func(t *testing.T) {
			t.Setenv("GOGC", "")
			t.Setenv("GOMEMLIMIT", "")
			want := byDefault
			if name != "" {
				t.Setenv(name, "1000000000")
				want = theirs
			}
			before := debug.SetGCPercent(theirs)
			defer debug.SetGCPercent(before)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			Run(ctx)
			if got := debug.SetGCPercent(theirs); got != want {
				t.Errorf("the heap may grow by %d %%, want %d", got, want)
			}
		})
	}
}

// TestReading: the process can read what a look needs.
func TestReading(t *testing.T) {
	if memory() == 0 {
		t.Error("nobody knows how much memory there is")
	}
	runtime.GC()
	if read().live == 0 {
		t.Error("the heap cannot be read")
	}
}
