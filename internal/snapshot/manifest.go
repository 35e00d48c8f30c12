package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// Manifest describes a snapshot. It is stored last: a snapshot without a manifest
// does not count as one.
type Manifest struct {
	Format  int          `json:"format"`
	Journal string       `json:"journal"`
	Slot    journal.Slot `json:"slot"`
	Hash    string       `json:"hash"`   // of the state, in hex; see Hash
	Chains  string       `json:"chains"` // names the blob of the chains at the last slots
	Parts   []string     `json:"parts"`  // name the blobs of the parts, in order

	// The fields below are for people: nothing depends on them, and servers of earlier versions
	// leave them out.
	Writer  string    `json:"writer,omitempty"` // who wrote the snapshot, as 16 hex digits
	Written time.Time `json:"written,omitzero"` // by the writer's clock
	Bytes   int64     `json:"bytes,omitempty"`  // of the other blobs
}

// Author is the writer of a snapshot, and when it wrote it, by its own clock.
type Author struct {
	Writer mvcc.WriterID
	At     time.Time
}

// Author is who wrote the snapshot, as it says itself; the zero value if it does not say.
func (m *Manifest) Author() Author {
	writer, err := strconv.ParseUint(m.Writer, 16, 64)
	if err != nil || len(m.Writer) != 16 {
		return Author{}
	}
	return Author{mvcc.WriterID(writer), m.Written}
}

// sameState says whether two manifests are of one state, stored in the same blobs, whoever
// wrote them.
func (m *Manifest) sameState(o *Manifest) bool {
	return m.Journal == o.Journal && m.Slot == o.Slot && m.Hash == o.Hash && m.Chains == o.Chains && slices.Equal(m.Parts, o.Parts)
}

// The limits of a snapshot. A state beyond them is not stored, and a snapshot beyond
// them is not read.
const (
	// MaxState is how long the parts of a state are together, in bytes before
	// compression: as large as etcd's documentation lets a database be.
	MaxState = 8 << 30
	// maxParts is how many parts a state of MaxState has at most: the first and the last
	// one may be short.
	maxParts = MaxState/mvcc.PartSize + 2
	// MaxBlobs is how many blobs a snapshot has at most: also the chains, the manifest
	// and a dispute.
	MaxBlobs  = maxParts + 3
	maxChains = record.AnchorSpan * len(record.Chain{})
)

// maxPart is the greatest length of part i before compression, in bytes.
func maxPart(i int) int {
	if i == 0 {
		return mvcc.MaxFirstPart
	}
	return mvcc.MaxPart
}

// ReadManifest reads and checks the manifest of the snapshot at slot: every blob
// that it names belongs to that snapshot and is named once, and there are no more
// parts than a state at that slot can have. The error wraps ErrBad, or is one of
// the store's.
func ReadManifest(ctx context.Context, blobs journal.Blobs, slot journal.Slot) (m Manifest, err error) {
	data, err := blobs.GetBlob(ctx, Folder(slot)+manifestName)
	if err != nil {
		return m, fmt.Errorf("get manifest: %w", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("manifest: %w: %w", ErrBad, err)
	}
	if n := uint64(len(m.Parts)); m.Slot != slot || n == 0 || n > min(maxParts, mvcc.MaxParts(slot)) {
		return m, fmt.Errorf("manifest of slot %d with %d parts: %w", m.Slot, n, ErrBad)
	}
	seen := map[string]bool{}
	for _, name := range append([]string{m.Chains}, m.Parts...) {
		dir, sum := path.Split(name)
		if dir != Folder(slot) || len(sum) != 2*sha256.Size || strings.Trim(sum, "0123456789abcdef") != "" || seen[name] {
			return m, fmt.Errorf("manifest names %.100q: %w", name, ErrBad)
		}
		seen[name] = true
	}
	return m, nil
}

// total adds up the lengths of parts, and fails beyond most bytes. It is safe for
// concurrent use.
type total struct {
	most int64
	sum  atomic.Int64
}

func (t *total) add(part []byte) error {
	if t.sum.Add(int64(len(part))) > t.most {
		return fmt.Errorf("the state has more than %d bytes: %w", t.most, ErrBad)
	}
	return nil
}

// Blobs returns the names of the blobs that the snapshot consists of, its manifest
// among them.
func (m *Manifest) Blobs() []string {
	return append(append([]string{m.Chains}, m.Parts...), Folder(m.Slot)+manifestName)
}
