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

// TestJudge: a test that failed has found the fault; one that did not end in time has not.
func TestJudge(t *testing.T) {
	const over = "panic: test timed out after 4m0s\n\trunning tests:\n\t\tTestSlow (4m0s)\n\ngoroutine 1 [running]:\nFAIL\tpkg\t240.0s\n"
	for said, want := range map[string]struct {
		outcome
		test string
	}{
		"--- FAIL: TestA (0.00s)\n    a_test.go:1: lost\nFAIL\n": {found, " TestA"},
		"panic: nil map\n\ngoroutine 1 [running]:\nFAIL\tpkg\n":  {found, ""},
		over:                                     {timedOut, " TestSlow"},
		"panic: test timed out after 4m0s\n":     {timedOut, ""},
		"    --- FAIL: TestA/x (0.00s)\n" + over: {found, " TestA/x"},
		over + "--- FAIL: TestSlow (240.00s)\n":  {timedOut, " TestSlow"},
	} {
		if got, test, err := judge(said); got != want.outcome || test != want.test || err != nil {
			t.Errorf("%q is %v by%s, %v; want %v by%s", said, got, test, err, want.outcome, want.test)
		}
	}
	if _, _, err := judge("FAIL\tpkg [build failed]\n"); err == nil {
		t.Error("code that does not build is judged")
	}
}
