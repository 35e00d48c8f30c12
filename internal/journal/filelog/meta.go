package filelog

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/disk"
	"github.com/xbernetes/xbernetes/internal/journal/filelog/segment"
)

// castagnoli is the polynomial of all checksums of a journal.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// meta is the content of meta.json. What it says of the end of the log was true
// when it was written, and the log only grows: if it ends before that, it has lost its end.
type meta struct {
	id    journal.ID
	floor journal.Slot
	last  journal.Slot // the first slot of the last segment
	tail  journal.Slot // the last slot that was held
}

// metaJSON is meta as it is written.
type metaJSON struct {
	Format int          `json:"format"`
	ID     string       `json:"id"`
	Floor  journal.Slot `json:"floor"`
	Last   journal.Slot `json:"last"`
	Tail   journal.Slot `json:"tail"`
	// CRC32C is the checksum of the others, in hex.
	CRC32C string `json:"crc32c"`
}

func (j metaJSON) sum() string {
	return fmt.Sprintf("%08x", crc32.Checksum(fmt.Appendf(nil, "%d %s %d %d %d", j.Format, j.ID, j.Floor, j.Last, j.Tail), castagnoli))
}

func writeMeta(fs disk.FS, dir string, m meta) error {
	j := metaJSON{Format: journal.FormatVersion, ID: m.id.String(), Floor: m.floor, Last: m.last, Tail: m.tail}
	j.CRC32C = j.sum()
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, metaName)
	return disk.Replace(fs, path, path+disk.TmpSuffix, append(text, '\n'))
}

// readMeta reads meta.json. If there is none, the error is fs.ErrNotExist.
func readMeta(fs disk.FS, dir string) (meta, error) {
	path := filepath.Join(dir, metaName)
	text, err := readFile(fs, path, maxMeta)
	if err != nil {
		return meta{}, err
	}
	m, err := decodeMeta(text)
	if err != nil {
		return meta{}, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func decodeMeta(text []byte) (meta, error) {
	var j metaJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return meta{}, fmt.Errorf("this is not what xb writes (%w): %w", err, journal.ErrCorrupt)
	}
	if j.Format > 0 {
		if err := journal.CheckFormat(j.Format); err != nil {
			return meta{}, err
		}
	}
	id, err := hex.DecodeString(j.ID)
	m := meta{floor: j.Floor, last: j.Last, tail: j.Tail}
	if err != nil || len(id) != len(m.id) || j.Format < 1 || j.Floor < 1 || j.Last < 1 || j.CRC32C != j.sum() {
		return meta{}, fmt.Errorf("this is not what xb writes, or not any more: %w", journal.ErrCorrupt)
	}
	copy(m.id[:], id)
	return m, nil
}

// maxMeta is more than meta.json ever has, in bytes.
const maxMeta = 64 << 10

// readFile reads a file of at most most bytes; a longer one is ErrCorrupt.
func readFile(fs disk.FS, path string, most int64) ([]byte, error) {
	f, err := fs.Open(path, false)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read from
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, fmt.Errorf("%s has %d bytes, at most %d belong there: %w", path, size, most, journal.ErrCorrupt)
	}
	data := make([]byte, size)
	if _, err := f.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return data, nil
}

// lost says what is known to be missing from the log in dir, of which v was found.
func (m meta) lost(dir string, v view) error {
	if v.last().First < m.last {
		return fmt.Errorf("%s is missing: the log had records up to slot %d at least, and ends with slot %d: %w",
			segment.Path(filepath.Join(dir, journalDir), m.last), m.tail, v.next-1, journal.ErrCorrupt)
	}
	if v.next <= m.tail {
		return fmt.Errorf("the log ends with slot %d, and slot %d had been written: the end of %s is missing: %w",
			v.next-1, m.tail, v.last().Path, journal.ErrCorrupt)
	}
	return nil
}
