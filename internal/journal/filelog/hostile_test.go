package filelog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// TestLongFiles: a file that somebody else made long is not read into memory.
func TestLongFiles(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.PutBlob(t.Context(), "b", []byte("short")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{filepath.Join(blobDir, "b"+blobSuffix), metaName} {
		if err := os.Truncate(filepath.Join(dir, file), 1<<40); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.GetBlob(t.Context(), "b"); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("a long blob: %v", err)
	}
	if _, err := OpenReadOnly(t.Context(), dir); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("a long meta.json: %v", err)
	}
	if err := l.PutBlob(t.Context(), "b", make([]byte, journal.MaxBlob+1)); err == nil {
		t.Error("a blob longer than any was stored")
	}
}
