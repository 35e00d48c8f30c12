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
)

// meta is the content of meta.json.
type meta struct {
	id    journal.ID
	floor journal.Slot
}

// metaJSON is meta as it is written.
type metaJSON struct {
	Format int          `json:"format"`
	ID     string       `json:"id"`
	Floor  journal.Slot `json:"floor"`
	// CRC32C is the checksum of the other three, in hex.
	CRC32C string `json:"crc32c"`
}

func (j metaJSON) sum() string {
	return fmt.Sprintf("%08x", crc32.Checksum(fmt.Appendf(nil, "%d %s %d", j.Format, j.ID, j.Floor), castagnoli))
}

func writeMeta(fs vfs, dir string, m meta) error {
	j := metaJSON{Format: journal.FormatVersion, ID: m.id.String(), Floor: m.floor}
	j.CRC32C = j.sum()
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, metaName)
	return replaceFile(fs, path, path+tmpSuffix, append(text, '\n'))
}

// readMeta reads meta.json. If there is none, the error is fs.ErrNotExist.
func readMeta(fs vfs, dir string) (meta, error) {
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
	if j.Format > journal.FormatVersion {
		return meta{}, fmt.Errorf("format %d, this xb reads up to %d: %w", j.Format, journal.FormatVersion, journal.ErrNewerFormat)
	}
	id, err := hex.DecodeString(j.ID)
	m := meta{floor: j.Floor}
	if err != nil || len(id) != len(m.id) || j.Format < 1 || j.Floor < 1 || j.CRC32C != j.sum() {
		return meta{}, fmt.Errorf("this is not what xb writes, or not any more: %w", journal.ErrCorrupt)
	}
	copy(m.id[:], id)
	return m, nil
}

// maxMeta is more than meta.json ever has, in bytes.
const maxMeta = 64 << 10

// readFile reads a file of at most most bytes; a longer one is ErrCorrupt.
func readFile(fs vfs, path string, most int64) ([]byte, error) {
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
