package replica

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/record"
)

// SnapshotPolicy says at which slots replicas take a snapshot. It looks at
// the journal only, so all replicas with one policy choose the same slots;
// the one that wrote the record there stores the snapshot, the others check.
type SnapshotPolicy struct {
	// EveryBytes is how much journal lies between two snapshots at least; the
	// size of the state, if that is more. 0 for 16 MiB.
	EveryBytes int64
	// RecordWeight is added to every record's length: what reading one more
	// record costs at a restart, in bytes. 0 for 256.
	RecordWeight int64
}

const (
	defaultEveryBytes   = 16 << 20
	defaultRecordWeight = 256
	manifestName        = "manifest.json"
	loaders             = 8
)

// manifest describes a snapshot; it is stored last.
type manifest struct {
	Format  int          `json:"format"`
	Journal string       `json:"journal"`
	Slot    journal.Slot `json:"slot"`
	// Hash is SHA-256 over the chain at the slot and the SHA-256 of each part.
	Hash   string   `json:"hash"`
	Chains string   `json:"chains"` // blob: the chains of the last slots
	Parts  []string `json:"parts"`  // blobs: the parts, compressed
}

// snapshots is the loop's part in taking and checking snapshots.
type snapshots struct {
	// weight is of the journal since the last snapshot slot, or since the last
	// mark, whichever is later: marks bring replicas into step that were not.
	weight  int64
	owed    bool         // no mark has come since the last snapshot slot
	named   journal.Slot // the highest that a mark has named
	late    bool         // a snapshot is due at the next record of ours
	looked  bool         // whether the start had much to replay
	working bool         // a snapshot is being made or hashed
	done    chan snapshot
	own     map[journal.Slot]ownHash
	marks   []mark // the last that the journal holds, oldest first
	// stored are the last that this replica stored, or is about to.
	stored   []journal.Slot
	checking bool // whether this replica is wrong: it stores none meanwhile
}

// ownHash is the hash of this replica's state at a slot.
type ownHash struct {
	sum    [sha256.Size]byte
	loaded bool // it came with the snapshot, and was not computed from records
	// Another replica says otherwise: the state is being made anew, or was, with
	// the same outcome.
	checking, confirmed bool
}

// snapshot is what making one came to.
type snapshot struct {
	slot    journal.Slot
	hash    [sha256.Size]byte
	hashed  bool // hash is that of the state
	stored  bool
	checked bool  // what was stored was read back
	err     error // of hashing or storing it
}

// RetrySnapshot divides the journal between two snapshots: after that part of it one
// that was missed is due again, and a start that has as much to replay takes one.
const RetrySnapshot = 4

// passed notes that a slot was applied, with a record of so many bytes, and takes a
// snapshot if one is due. It is stored if the record was mine.
func (s *snapshots) passed(l *loop, size int, mine bool) {
	s.weight += l.cfg.Snapshots.Weight(size)
	if l.ready {
		s.look(l)
	}
	switch bytes := l.state.Bytes(); {
	case l.cfg.Snapshots.Due(s.weight, bytes):
	case s.owed && l.cfg.Snapshots.Due(RetrySnapshot*s.weight, bytes):
	case s.late && mine && !s.working:
	default:
		return
	}
	s.take(l, mine)
}

// take takes a snapshot of the state as it stands.
func (s *snapshots) take(l *loop, store bool) {
	s.weight, s.owed = 0, true
	if s.late = s.working && (store || s.late); s.working {
		return // one that was to be stored is, once the one under way is done
	}
	s.working = true
	if store = store && !s.checking; store {
		s.stored = append(s.stored[max(0, len(s.stored)-keptMarks):], l.state.Slot())
	}
	frozen, chains, sure := l.state.Freeze(), l.chains.Clone(), s.sure(l)
	l.group.Go(func() error {
		out := l.takeSnapshot(l.ctx, frozen, chains, store)
		if out.checked {
			l.dropSnapshots(l.ctx, min(out.slot, sure))
		}
		select {
		case s.done <- out:
		case <-l.ctx.Done():
		}
		return nil
	})
}

// look is called now and then once the tail was reached. Where there was much to
// replay, the servers before this one have ended before they stored a snapshot: one
// is due at the next record of ours. A journal that nobody else writes need not wait
// for a record.
func (s *snapshots) look(l *loop) {
	if !s.looked {
		s.looked = true
		s.late = s.late || s.owed || l.cfg.Snapshots.Due(RetrySnapshot*s.weight, l.state.Bytes())
	}
	if s.late && !s.working && l.info.Exclusive {
		s.take(l, true)
	}
}

// onSnapshot takes in the hash that this replica computed.
func (l *loop) onSnapshot(out snapshot) error {
	s := &l.snaps
	s.working = false
	if out.err != nil {
		if l.ctx.Err() == nil {
			l.log.Warn("snapshot was not stored; it is tried again soon", "slot", uint64(out.slot), "error", out.err)
		}
	} else if out.stored {
		l.log.Info("snapshot stored", "slot", uint64(out.slot))
		l.control(record.Snapshot, record.SnapshotMark{Slot: out.slot, Hash: out.hash}.Append(nil))
	}
	if !out.hashed {
		return nil
	}
	for slot := range s.own {
		if slot+record.AnchorSpan*64 < out.slot {
			delete(s.own, slot)
		}
	}
	s.own[out.slot] = ownHash{sum: out.hash}
	return s.judge(l, out.slot)
}

// takeSnapshot hashes a state and, if store is set, stores it.
func (r *Replica) takeSnapshot(ctx context.Context, f *mvcc.Frozen, chains *record.Chains, store bool) snapshot {
	out := snapshot{slot: f.View.Slot()}
	m := manifest{Format: journal.FormatVersion, Journal: r.info.ID.String(), Slot: out.slot}
	dir := snapshotDir(out.slot)
	put := func(raw []byte) (string, error) {
		data := record.Compress(nil, raw)
		sum := sha256.Sum256(data)
		name := dir + hex.EncodeToString(sum[:])
		return name, r.cfg.Store.PutBlob(ctx, name, data)
	}
	hash := newStateHash(chains.Last())
	out.err = f.Parts(func(part []byte) error {
		hash.add(part)
		if !store {
			return ctx.Err()
		}
		if len(m.Parts) == maxParts {
			return fmt.Errorf("the state is larger than %d parts of a snapshot", maxParts)
		}
		name, err := put(part)
		m.Parts = append(m.Parts, name)
		return err
	})
	if out.err != nil {
		return out
	}
	out.hash, out.hashed = hash.sum(), true
	if !store {
		return out
	}
	if m.Chains, out.err = put(chains.Append(nil)); out.err != nil {
		return out
	}
	m.Hash = hex.EncodeToString(out.hash[:])
	data, err := json.Marshal(m)
	if err != nil {
		out.err = err
		return out
	}
	if out.err = r.cfg.Store.PutBlob(ctx, dir+manifestName, data); out.err != nil {
		return out
	}
	out.stored = true
	err = checkSnapshot(ctx, r.cfg.Store, &m)
	if out.checked = err == nil; err != nil && ctx.Err() == nil {
		r.log.Warn("snapshot cannot be read back; older ones stay", "slot", uint64(out.slot), "error", err)
	}
	return out
}

// checkSnapshot reads back what takeSnapshot stored, a part at a time.
func checkSnapshot(ctx context.Context, blobs journal.Blobs, m *manifest) error {
	if _, err := getPart(ctx, blobs, m.Chains, maxChains); err != nil {
		return err
	}
	for i, name := range m.Parts {
		b, err := getPart(ctx, blobs, name, maxPart(i))
		if err != nil {
			return err
		}
		if i == 0 {
			continue // it is not of keys
		}
		if _, err := mvcc.ParsePart(b); err != nil {
			return fmt.Errorf("%s: %w: %w", name, ErrBadSnapshot, err)
		}
	}
	return nil
}

// dropSnapshots deletes all but the last snapshots, as far as it may. What is not
// older than sure stays: nothing else is known to be right.
func (r *Replica) dropSnapshots(ctx context.Context, sure journal.Slot) {
	names, err := r.cfg.Store.ListBlobs(ctx, SnapshotPrefix)
	if err != nil {
		return
	}
	slots := undisputed(names)
	if len(slots) <= KeepSnapshots {
		return
	}
	oldest := snapshotDir(min(slots[KeepSnapshots-1], sure))
	old := slices.DeleteFunc(names, func(name string) bool { return name >= oldest })
	manifestsFirst(old)
	for _, name := range old {
		if err := r.cfg.Store.DeleteBlob(ctx, name); err != nil {
			r.log.Debug("old snapshot stays", "blob", name, "error", err)
			return
		}
	}
}

// dropOrphans deletes blobs of snapshots that were never whole: what a server leaves
// behind that ends while it stores one. Only where nobody else can be storing one.
func (l *loop) dropOrphans() {
	names, err := l.cfg.Store.ListBlobs(l.ctx, SnapshotPrefix)
	if err != nil {
		return // the next start looks again
	}
	whole := map[string]bool{}
	for _, slot := range SnapshotSlots(names) {
		whole[snapshotDir(slot)] = true
	}
	for _, name := range names {
		if dir, _ := path.Split(name); !whole[dir] {
			if err := l.cfg.Store.DeleteBlob(l.ctx, name); err != nil {
				l.log.Debug("a blob of no snapshot stays", "blob", name, "error", err)
			}
		}
	}
}

// manifestsFirst puts the names of blobs into the order in which they are deleted: a
// snapshot without a manifest is none.
func manifestsFirst(names []string) {
	slices.SortStableFunc(names, func(a, b string) int {
		return strings.Compare(path.Base(b), path.Base(a)) // hashes sort below "manifest.json"
	})
}

func snapshotDir(slot journal.Slot) string {
	return fmt.Sprintf("%s%020d/", SnapshotPrefix, uint64(slot))
}

// SnapshotSlots returns the slots of the snapshots whose manifests are among
// the names of blobs, newest first.
func SnapshotSlots(names []string) []journal.Slot {
	var slots []journal.Slot
	for _, name := range names {
		if dir, file := path.Split(name); file == manifestName {
			n, err := strconv.ParseUint(strings.Trim(strings.TrimPrefix(dir, SnapshotPrefix), "/"), 10, 64)
			if err == nil {
				slots = append(slots, journal.Slot(n))
			}
		}
	}
	slices.SortFunc(slots, func(a, b journal.Slot) int {
		if a > b {
			return -1
		}
		return 1
	})
	return slots
}

// restore starts from the newest snapshot that is whole, or from nothing.
func (l *loop) restore() error {
	l.snaps.done = make(chan snapshot)
	l.snaps.own = map[journal.Slot]ownHash{}
	l.state, l.chains = mvcc.New(), record.NewChains(l.info.ID)
	// While they are looked at, newer ones may take their place.
	for tried := []journal.Slot(nil); l.state.Slot() == 0; {
		names, err := l.listSnapshots()
		if err != nil {
			return err
		}
		found := undisputed(names)
		if slices.Equal(found, tried) {
			break
		}
		tried = found
		if err := l.restoreNewest(found); err != nil {
			return err
		}
	}
	if l.info.Exclusive {
		l.dropOrphans()
	}
	l.hub.publish(l.state.View(), nil)
	return nil
}

// restoreNewest restores the first snapshot that is whole, if any is.
func (l *loop) restoreNewest(slots []journal.Slot) error {
	for _, slot := range slots {
		loaded, err := l.loadSnapshot(slot)
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		if err != nil {
			l.log.Warn("snapshot is not usable; trying another one", "slot", uint64(slot), "error", err)
			continue
		}
		if err := l.reaches(slot); err != nil {
			return err
		}
		l.state, l.chains = loaded.State, loaded.Chains
		l.snaps.own[slot] = ownHash{sum: loaded.Hash, loaded: true}
		l.log.Info("snapshot restored", "slot", uint64(slot), "revision", int64(l.state.Revision()))
		return nil
	}
	return nil
}

// reaches fails if the journal ends before slot, of which there is a snapshot: then
// records are missing that clients were told of, and whatever were appended would
// take their place.
func (l *loop) reaches(slot journal.Slot) error {
	wait := newPatience(l.Replica, "read")
	defer wait.over()
	for {
		recs, err := l.readOnce(wait, slot, 1)
		switch {
		case errors.Is(err, journal.ErrTrimmed) || len(recs) > 0:
			return nil
		case errors.Is(err, journal.ErrClosed), errors.Is(err, journal.ErrCorrupt):
			return err
		case err == nil:
			return fmt.Errorf("there is a snapshot of slot %d, and the journal ends before: %w; put it back from a copy, or go on without it, for good, by xb journal accept-loss", slot, ErrLostEnd)
		}
		if err := wait.pause(l.ctx, err); err != nil {
			return err
		}
	}
}

// loadSnapshot tries until the store has answered. What a journal was trimmed
// for must not be passed over because of a moment's trouble.
func (l *loop) loadSnapshot(slot journal.Slot) (Loaded, error) {
	var wait *patience
	for {
		loaded, err := LoadSnapshot(l.ctx, l.cfg.Store, l.info.ID, slot)
		if err == nil || errors.Is(err, ErrBadSnapshot) || errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrNoBlob) {
			return loaded, err
		}
		if wait == nil { // only now: a large one takes its time
			wait = newPatience(l.Replica, "load snapshot")
			defer wait.over()
		}
		if err := wait.pause(l.ctx, err); err != nil {
			return Loaded{}, err
		}
	}
}

func (l *loop) listSnapshots() ([]string, error) {
	wait := newPatience(l.Replica, "list snapshots")
	defer wait.over()
	for {
		var names []string
		err := wait.try(l.ctx, func(ctx context.Context) (err error) {
			names, err = l.cfg.Store.ListBlobs(ctx, SnapshotPrefix)
			return err
		})
		if err == nil {
			return names, nil
		}
		if err := wait.pause(l.ctx, err); err != nil {
			return nil, err
		}
	}
}

// Loaded is a snapshot taken out of its store.
type Loaded struct {
	State  *mvcc.State
	Chains *record.Chains
	Hash   [sha256.Size]byte // as computed from what was loaded
}

// ErrBadSnapshot: a snapshot that is incomplete or whose bytes are not what
// its manifest says.
var ErrBadSnapshot = errors.New("snapshot is bad")

// The limits of what a snapshot's manifest names: what comes close to them is
// not stored, and what is beyond is not read.
const (
	maxParts  = 4096 // some 16 GiB of state
	maxChains = record.AnchorSpan * len(record.Chain{})
)

// maxPart is how long part i is at most, in bytes.
func maxPart(i int) int {
	if i == 0 {
		return mvcc.MaxFirstPart
	}
	return mvcc.MaxPart
}

// readManifest reads and checks the manifest of the snapshot at slot: what it
// names is part of that snapshot, once each, and no more than the state at that
// slot can have. The error wraps ErrBadSnapshot, or is one of the store's.
func readManifest(ctx context.Context, blobs journal.Blobs, slot journal.Slot) (m manifest, err error) {
	dir := snapshotDir(slot)
	data, err := blobs.GetBlob(ctx, dir+manifestName)
	if err != nil {
		return m, fmt.Errorf("get manifest: %w", err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("manifest: %w: %w", ErrBadSnapshot, err)
	}
	if n := uint64(len(m.Parts)); m.Slot != slot || n == 0 || n > min(maxParts, mvcc.MaxParts(slot)) {
		return m, fmt.Errorf("manifest of slot %d with %d parts: %w", m.Slot, n, ErrBadSnapshot)
	}
	seen := map[string]bool{}
	for _, name := range append([]string{m.Chains}, m.Parts...) {
		in, sum := path.Split(name)
		if in != dir || len(sum) != 2*sha256.Size || strings.Trim(sum, "0123456789abcdef") != "" || seen[name] {
			return m, fmt.Errorf("manifest names %.100q: %w", name, ErrBadSnapshot)
		}
		seen[name] = true
	}
	return m, nil
}

// LoadSnapshot loads and checks the snapshot at slot. The error wraps
// ErrBadSnapshot, or is one of the store's.
func LoadSnapshot(ctx context.Context, blobs journal.Blobs, id journal.ID, slot journal.Slot) (Loaded, error) {
	m, err := readManifest(ctx, blobs, slot)
	if err != nil {
		return Loaded{}, err
	}
	if m.Journal != id.String() || m.Format != journal.FormatVersion {
		return Loaded{}, fmt.Errorf("manifest of journal %s, format %d: %w", m.Journal, m.Format, ErrBadSnapshot)
	}
	raw, parts, err := loadParts(ctx, blobs, m.Parts)
	if err != nil {
		return Loaded{}, err
	}
	ring, err := getPart(ctx, blobs, m.Chains, maxChains)
	if err != nil {
		return Loaded{}, err
	}
	out := Loaded{}
	if out.Chains, err = record.ParseChains(slot, ring); err != nil {
		return Loaded{}, fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	hash := newStateHash(out.Chains.Last())
	for _, sum := range raw.sums {
		hash.sums = append(hash.sums, sum[:]...)
	}
	if out.Hash = hash.sum(); hex.EncodeToString(out.Hash[:]) != m.Hash {
		return Loaded{}, fmt.Errorf("hash differs: %w", ErrBadSnapshot)
	}
	if out.State, err = mvcc.Thaw(raw.first, parts); err != nil {
		return Loaded{}, fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	if out.State.Slot() != slot {
		return Loaded{}, fmt.Errorf("state of slot %d: %w", out.State.Slot(), ErrBadSnapshot)
	}
	return out, nil
}

type rawParts struct {
	first []byte
	sums  [][sha256.Size]byte
}

// loadParts gets and decodes the parts, several at a time.
func loadParts(ctx context.Context, blobs journal.Blobs, names []string) (rawParts, []mvcc.Part, error) {
	raw := rawParts{sums: make([][sha256.Size]byte, len(names))}
	parts := make([]mvcc.Part, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(loaders)
	for i, name := range names {
		g.Go(func() error {
			b, err := getPart(ctx, blobs, name, maxPart(i))
			if err != nil {
				return err
			}
			raw.sums[i] = sha256.Sum256(b)
			if i == 0 {
				raw.first = b
				return nil
			}
			if parts[i], err = mvcc.ParsePart(b); err != nil {
				return fmt.Errorf("%w: %w", ErrBadSnapshot, err)
			}
			return nil
		})
	}
	err := g.Wait()
	return raw, parts[1:], err
}

// getPart gets a blob of a snapshot, which holds most bytes at most.
func getPart(ctx context.Context, blobs journal.Blobs, name string, most int) ([]byte, error) {
	data, err := blobs.GetBlob(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("get part: %w", err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != path.Base(name) {
		return nil, fmt.Errorf("bytes of %s differ from its name: %w", name, ErrBadSnapshot)
	}
	raw, err := record.Decompress(data, most)
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w: %w", name, ErrBadSnapshot, err)
	}
	return raw, nil
}

// stateHash makes the hash of a state from its chain and its parts.
type stateHash struct{ sums []byte }

func newStateHash(last record.Chain) *stateHash { return &stateHash{sums: slices.Clone(last[:])} }

func (h *stateHash) add(part []byte) {
	sum := sha256.Sum256(part)
	h.sums = append(h.sums, sum[:]...)
}

func (h *stateHash) sum() [sha256.Size]byte { return sha256.Sum256(h.sums) }

// HashState is the hash of a state, as a snapshot's manifest names it.
func HashState(f *mvcc.Frozen, last record.Chain) ([sha256.Size]byte, error) {
	h := newStateHash(last)
	err := f.Parts(func(part []byte) error { h.add(part); return nil })
	return h.sum(), err
}
