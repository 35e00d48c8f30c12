package embedded_test

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/natslog/embedded"
	"github.com/xbernetes/xbernetes/internal/privatefile"
)

func TestSuite(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture {
		dir := t.TempDir()
		return journaltest.Fixture{Open: func(ctx context.Context) (journal.Store, error) { return embedded.Open(ctx, dir, embedded.Options{}) }}
	})
}

// TestOneProcessAtATime: a directory that is open is not opened again, and what it
// holds is there after it is closed. A reader makes none.
func TestOneProcessAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	readOnly := embedded.Options{ReadOnly: true}
	if _, err := embedded.Open(t.Context(), dir, readOnly); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a reader of what is not there: %v", err)
	}
	first, err := embedded.Open(t.Context(), dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Append(t.Context(), 1, []byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := embedded.Open(t.Context(), dir, embedded.Options{}); !errors.Is(err, privatefile.ErrLocked) {
		t.Errorf("a second process: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := first.Append(t.Context(), 2, nil); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("Append after Close = %v, want %v", err, journal.ErrClosed)
	}
	reader, err := embedded.Open(t.Context(), dir, readOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if rec, err := reader.Peek(t.Context(), 1); err != nil || string(rec) != "x" {
		t.Errorf("Peek(1) = %q, %v", rec, err)
	}
	if err := reader.Append(t.Context(), 2, []byte("y")); err == nil {
		t.Error("a reader appends")
	}
}
