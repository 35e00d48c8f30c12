package fsck_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"go.uber.org/goleak"

	"github.com/xbernetes/xbernetes/internal/devstore"
	"github.com/xbernetes/xbernetes/internal/devstore/storetest"
	"github.com/xbernetes/xbernetes/internal/fsck"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/s3log"
)

func TestMain(m *testing.M) {
	code := storetest.Main(m)
	if code == 0 && flag.Parsed() { // else this process was not the tests but their store
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// TestS3 damages a journal in a bucket, behind the back of its driver.
func TestS3(t *testing.T) {
	dir := t.TempDir()
	account := devstore.Account{AccessKey: "vendor", SecretKey: "vendor-secret", Owner: true}
	store := storetest.Start(t, devstore.Config{Dir: dir, Bucket: "journals", Accounts: []devstore.Account{account}})
	cfg := s3log.Config{
		Bucket: "journals", Prefix: "j", Endpoint: store.Endpoint(), PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(account.AccessKey, account.SecretKey, ""),
	}
	s3, err := s3log.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := journal.Slot(40 + 2*s3.Info().Depth)
	b := newBenchOn(t, s3, s3.Info().ID)
	for i := range n {
		if b.batch(1, put(fmt.Sprint("k", i%7), fmt.Sprint(i))) == 30 {
			b.snapshot(30)
		}
	}
	if err := s3.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.ReadOnly = true
	find := func(t *testing.T) *fsck.Report {
		s3, err := s3log.Open(t.Context(), cfg) // each opens the journal anew, and has seen nothing of it
		if err != nil {
			t.Fatal(err)
		}
		defer s3.Close()
		return check(t, s3, fsck.Options{})
	}
	if sound := find(t); sound.LastSlot != n || sound.Errors+sound.Warnings > 0 || sound.Snapshots[0].Status != fsck.Verified {
		t.Fatalf("before any damage:\n%s", text(t, sound))
	}
	object := func(slot journal.Slot) string {
		return filepath.Join(dir, "objects", "journals", "j", "journal", fmt.Sprintf("%020d", slot))
	}
	away := filepath.Join(dir, "away") // an object that is written back by hand would lack its ETag
	remove := func(path string, _ []byte) error { return os.Rename(path, away) }
	for _, c := range []struct {
		name   string
		slot   journal.Slot
		damage func(path string, data []byte) error
		code   fsck.Code
		last   journal.Slot
	}{
		{"one slot lost", 20, remove, fsck.LostSlots, 19},
		{"one slot lost behind the snapshot", 40, remove, fsck.LostSlots, 39},
		{"the last but one lost", n - 1, remove, fsck.LostSlots, n - 2},
		// No writer that had read it has written since.
		{"the last lost", n, remove, "", n - 1},
		{"a bit flipped", 20, func(path string, data []byte) error {
			data[len(data)/2] ^= 8
			return os.WriteFile(path, data, 0o600)
		}, fsck.CorruptSlot, n},
		{"cut short", 20, func(path string, data []byte) error { return os.WriteFile(path, data[:len(data)-1], 0o600) }, fsck.CorruptSlot, n},
		{"another slot's object", 20, func(path string, _ []byte) error {
			other, err := os.ReadFile(object(21))
			if err != nil {
				return err
			}
			return os.WriteFile(path, other, 0o600)
		}, fsck.CorruptSlot, n},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := os.ReadFile(object(c.slot))
			if err != nil {
				t.Fatal(err)
			}
			original := append([]byte(nil), data...)
			if err := c.damage(object(c.slot), data); err != nil {
				t.Fatal(err)
			}
			report := find(t)
			if c.code != "" && (len(report.Findings) == 0 || report.Findings[0].Code != c.code || report.ExitCode() != 1) || report.LastSlot != c.last {
				t.Errorf("want %s, and %d as the last slot:\n%s", c.code, c.last, text(t, report))
			}
			err = os.Rename(away, object(c.slot))
			if errors.Is(err, fs.ErrNotExist) {
				err = os.WriteFile(object(c.slot), original, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}
