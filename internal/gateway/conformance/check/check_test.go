package check

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestAll: a broken convention counts, whatever could not be checked.
func TestAll(t *testing.T) {
	skipped, broken := Skipf("forbidden"), errors.New("broken")
	for name, c := range map[string]struct {
		errs            []error
		broken, skipped bool
	}{
		"nothing":            {nil, false, false},
		"nothing wrong":      {[]error{nil, nil}, false, false},
		"skipped":            {[]error{nil, skipped}, false, true},
		"broken":             {[]error{nil, broken}, true, false},
		"skipped and broken": {[]error{skipped, broken, skipped}, true, false},
	} {
		err := All(c.errs)
		if (err != nil && !IsSkipped(err)) != c.broken || IsSkipped(err) != c.skipped {
			t.Errorf("%s: %v; want broken: %t, skipped: %t", name, err, c.broken, c.skipped)
		}
	}
}

type named string

func (n named) String() string { return string(n) }

// TestEach: resources that break the convention are named, five of them at most;
// those that could not be asked are no reason to fail.
func TestEach(t *testing.T) {
	ask := func(r named) error {
		switch r[0] {
		case 'b':
			return errors.New("broken")
		case 's':
			return fmt.Errorf("wrapped: %w", Skipf("forbidden"))
		}
		return nil
	}
	for name, c := range map[string]struct {
		resources []named
		err       string
		asked     int
	}{
		"none":               {nil, "no resource that the caller may list", 0},
		"good":               {[]named{"g", "s"}, "", 1},
		"broken and skipped": {[]named{"s", "b", "g"}, "b: broken", 2},
		"skipped":            {[]named{"s1", "s2"}, "s1: forbidden", 0},
		"many":               {[]named{"b1", "b2", "b3", "b4", "b5", "b6", "b7"}, "b5: broken\nand 2 more", 7},
	} {
		f := Each(c.resources, ask)
		got := ""
		if f.Err != nil {
			got = f.Err.Error()
		}
		if (got == "") != (c.err == "") || !strings.Contains(got, c.err) || len(f.Resources) != c.asked {
			t.Errorf("%s: %q of %v; want %q of %d", name, got, f.Resources, c.err, c.asked)
		}
	}
}
