package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExposedFolders: a folder that is there already and open to others is
// complained of, and one that xb makes itself is not open.
func TestExposedFolders(t *testing.T) {
	complaints := func(dir string) string {
		t.Helper()
		var log strings.Builder
		store, err := openStore(t.Context(), "file://"+dir, openOptions{log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		store.Close()
		return log.String()
	}
	wide := t.TempDir()
	if err := os.Chmod(wide, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := complaints(wide); !strings.Contains(got, "chmod 700") || !strings.Contains(got, wide) || !strings.Contains(got, "0777") {
		t.Errorf("a folder with mode 0777: %q", got)
	}
	made := filepath.Join(t.TempDir(), "made")
	for range 2 {
		if got := complaints(made); got != "" {
			t.Errorf("a folder of its own: %q", got)
		}
	}
}
