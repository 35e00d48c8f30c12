package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFaultsApply: each fault still finds the text that it changes, and has a name of its
// own. make mutants tells whether tests find them.
func TestFaultsApply(t *testing.T) {
	names := map[string]bool{}
	for _, m := range faults {
		if names[m.name] {
			t.Errorf("two faults are named %q", m.name)
		}
		names[m.name] = true
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		if changed, err := m.mutated(string(text)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		} else if changed == string(text) || len(m.tests) == 0 {
			t.Errorf("%s: nothing is changed, or nothing is to find it", m.name)
		}
	}
	if len(faults) < 40 {
		t.Errorf("there are %d faults, want 40 or more", len(faults))
	}
}
