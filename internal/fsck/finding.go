package fsck

import "github.com/xbernetes/xbernetes/internal/journal"

// Found is what a check found. Only add changes it.
type Found struct {
	// Findings are listed in the order in which they were found. Invariant: at most
	// listed of each code.
	Findings []Finding    `json:"findings"`
	Omitted  map[Code]int `json:"omittedFindings,omitempty"` // by code: found but not listed
	Errors   int          `json:"errors"`                    // listed or not
	Warnings int          `json:"warnings"`                  // listed or not
}

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // data is lost or corrupt, or servers may differ
	Warning Severity = "warning" // nothing is lost; somebody should know why
	Info    Severity = "info"    // as it may be in a sound journal
)

// Code names a kind of finding, for programs.
type Code string

// The codes of findings.
const (
	Unopenable       Code = "unopenable"
	CorruptSlot      Code = "corrupt-slot"
	LostSlots        Code = "lost-slots"
	TrimmedUnasked   Code = "trimmed-unasked"
	NoWayOn          Code = "no-way-on"
	ResumedAt        Code = "resumed-at"
	OtherHistory     Code = "other-history"
	VoidRecord       Code = "void-record"
	OtherFormat      Code = "other-format"
	SeenBefore       Code = "seen-before"
	MarkDiffers      Code = "mark-differs"
	OddMark          Code = "odd-mark"
	SnapshotUnusable Code = "snapshot-unusable"
	SnapshotDisputed Code = "snapshot-disputed"
	SnapshotDiffers  Code = "snapshot-differs"
	SnapshotPastTail Code = "snapshot-past-tail"
	OrphanBlobs      Code = "orphan-blobs"
	UnknownBlobs     Code = "unknown-blobs"
	UnlistedBlobs    Code = "unlisted-blobs"
)

// Finding is one thing that people may want to know.
type Finding struct {
	Severity Severity     `json:"severity"`
	Code     Code         `json:"code"`
	Slot     journal.Slot `json:"slot,omitempty"`
	Blob     string       `json:"blob,omitempty"` // a blob's name, or what names start with
	Message  string       `json:"message"`
}

// listed is how many findings of one code are listed.
const listed = 20

// add counts a finding, and lists it if there is room.
func (fd *Found) add(f Finding) {
	f.Message, f.Blob = printable(f.Message), printable(f.Blob)
	switch f.Severity {
	case Error:
		fd.Errors++
	case Warning:
		fd.Warnings++
	case Info: // not counted
	}
	n := 0
	for i := range fd.Findings {
		if fd.Findings[i].Code == f.Code {
			n++
		}
	}
	if n < listed {
		fd.Findings = append(fd.Findings, f)
		return
	}
	if fd.Omitted == nil {
		fd.Omitted = map[Code]int{}
	}
	fd.Omitted[f.Code]++
}
