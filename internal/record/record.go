// Package record is the envelope of what a journal's slot holds: who wrote
// it, what came before it, and a body. It never looks into the body of a
// batch. docs/journal-format.md gives the bytes.
package record

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/mvcc"
)

// Kind says what a record's body is.
type Kind uint8

// The kinds of a record.
const (
	// Batch: requests, as mvcc.AppendRequests writes them.
	Batch Kind = 1
	// Floor: the slots below the one that the body names may be deleted.
	Floor Kind = 2
	// Snapshot: the state at the slot that the body names has the hash that
	// the body names. See SnapshotMark.
	Snapshot Kind = 3
)

// ErrFormat: a whole record, by its checksum, of another format than this build's. This
// build cannot tell what the record says, so it can apply nothing after it.
var ErrFormat = errors.New("record of another format")

// ErrMalformed: bytes that are no record of this format. The slot that holds them is
// void.
var ErrMalformed = errors.New("malformed record")

// Header is what a record says of itself.
type Header struct {
	Journal journal.ID
	Writer  mvcc.WriterID
	Number  mvcc.BatchNumber // of the writer's records, from 1; 0: the record only fills its slot
	// Anchor is a slot below the record's own, and AnchorChain the chain there: they
	// tie the record to one history. The anchor need not be the slot just before, so
	// that a record can be placed while others are in flight.
	Anchor      journal.Slot
	AnchorChain Chain
	Kind        Kind
	// Turns is 0, or asks for turns at the slots to come, and is the writer's round
	// trip to the journal in milliseconds. Every replica derives the same turns from
	// it. The state does not depend on it.
	Turns uint16
	// Agrees says that the writer came to the hash that the newest Snapshot
	// record up to the anchor names, by applying records.
	Agrees bool
}

// AnchorSpan is how far below a record its anchor may lie; beyond it the
// record is void.
const AnchorSpan = 1024

// MaxBody bounds a body before compression, in bytes: a full batch and its count.
const MaxBody = mvcc.MaxBatchWeight + 16

// The layout: magic 4, journal 16, writer 8, number 8, anchor 8, chain 32,
// kind 1, flags 1, turns 2, body length as stored 4, body, CRC-32C 4. Little-endian.
const (
	headerSize = 4 + 16 + 8 + 8 + 8 + 32 + 1 + 1 + 2 + 4
	// Overhead is how much longer a record is than its body, in bytes.
	Overhead = headerSize + 4

	flagZstd   = 1 << 0
	flagAgrees = 1 << 1
)

var (
	magic      = [4]byte{'x', 'b', 'r', 3} // with the format
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// encoder is the process's compressor, which is safe for concurrent use.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

// decoders are the process's decompressors: a *zstd.Decoder for each limit on the length
// of what it returns. There are as many as there are limits in the code.
var decoders sync.Map

func decoder(most int) *zstd.Decoder {
	if d, ok := decoders.Load(most); ok {
		return d.(*zstd.Decoder)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(uint64(most)), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		panic(err) // the options are constants
	}
	kept, _ := decoders.LoadOrStore(most, d)
	return kept.(*zstd.Decoder)
}

// maxWindow is more than the window that Compress uses, in bytes.
const maxWindow = 64 << 20

// Compress appends src, compressed with zstd, to dst.
func Compress(dst, src []byte) []byte { return encoder().EncodeAll(src, dst) }

// Decompress returns what Compress was given, unless that is longer than most bytes. It
// takes about that much memory at most, whatever b claims: a few forged bytes can stand
// for gigabytes. most must be a constant.
func Decompress(b []byte, most int) ([]byte, error) { return decoder(most).DecodeAll(b, nil) }

// Append appends the record of h and body to dst. If compress is set, the body is
// compressed, unless that makes it longer.
func Append(dst []byte, h *Header, body []byte, compress bool) []byte {
	start := len(dst)
	dst = append(dst, magic[:]...)
	dst = append(dst, h.Journal[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Writer))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Number))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Anchor))
	dst = append(dst, h.AnchorChain[:]...)
	flags := byte(0)
	if h.Agrees {
		flags = flagAgrees
	}
	dst = append(dst, byte(h.Kind), flags)
	dst = binary.LittleEndian.AppendUint16(dst, h.Turns)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	at := len(dst)
	if compress {
		dst = Compress(dst, body)
		if n := len(dst) - at; n < len(body) {
			dst[at-7] |= flagZstd
			binary.LittleEndian.PutUint32(dst[at-4:], uint32(n))
		} else {
			dst = append(dst[:at], body...)
		}
	} else {
		dst = append(dst, body...)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// Parse decodes a record. The body may share memory with b. The error wraps
// ErrMalformed or ErrFormat; with the latter, h has the journal.
func Parse(b []byte) (h Header, body []byte, err error) {
	if len(b) < Overhead || [3]byte(b) != [3]byte(magic[:]) {
		return h, nil, fmt.Errorf("no header in %d bytes: %w", len(b), ErrMalformed)
	}
	end := len(b) - 4
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return h, nil, fmt.Errorf("checksum: %w", ErrMalformed)
	}
	copy(h.Journal[:], b[4:])
	if b[3] != magic[3] {
		return h, nil, fmt.Errorf("format %d, this xb reads %d: %w", b[3], magic[3], ErrFormat)
	}
	h.Writer = mvcc.WriterID(binary.LittleEndian.Uint64(b[20:]))
	h.Number = mvcc.BatchNumber(binary.LittleEndian.Uint64(b[28:]))
	h.Anchor = journal.Slot(binary.LittleEndian.Uint64(b[36:]))
	copy(h.AnchorChain[:], b[44:])
	h.Kind = Kind(b[76])
	flags := b[77]
	h.Agrees = flags&flagAgrees != 0
	h.Turns = binary.LittleEndian.Uint16(b[78:])
	body = b[headerSize:end:end]
	if flags&^(flagZstd|flagAgrees) != 0 || h.Kind < Batch || h.Kind > Snapshot || uint64(len(body)) != uint64(binary.LittleEndian.Uint32(b[80:])) {
		return h, nil, fmt.Errorf("kind %d, flags %#x, %d bytes of body: %w", h.Kind, flags, len(body), ErrMalformed)
	}
	if flags&flagZstd != 0 {
		if body, err = Decompress(body, MaxBody); err != nil {
			return h, nil, fmt.Errorf("decompress: %w: %w", ErrMalformed, err)
		}
	}
	if len(body) > MaxBody {
		return h, nil, fmt.Errorf("%d bytes of body: %w", len(body), ErrMalformed)
	}
	return h, body, nil
}

// SnapshotMark is the body of a Snapshot record.
type SnapshotMark struct {
	Slot journal.Slot
	Hash [sha256.Size]byte // of the state's canonical form, see snapshot.Hash
}

// Append appends the mark's bytes to dst: slot 8, hash 32.
func (m SnapshotMark) Append(dst []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(dst, uint64(m.Slot)), m.Hash[:]...)
}

// ParseSnapshotMark decodes the body of a Snapshot record.
func ParseSnapshotMark(b []byte) (m SnapshotMark, err error) {
	if len(b) != 8+sha256.Size {
		return m, fmt.Errorf("snapshot mark of %d bytes: %w", len(b), ErrMalformed)
	}
	m.Slot = journal.Slot(binary.LittleEndian.Uint64(b))
	copy(m.Hash[:], b[8:])
	return m, nil
}
