package fsck

import (
	"fmt"
	"io"
	"strings"
)

// advice is what to do about findings, by code; what is not here needs nothing.
var advice = map[Code]string{
	Unopenable:       "Stop the servers of this journal. Put the damaged file back from a copy, or go on from a copy of the whole journal. What can still be read, xb journal dump --salvage prints. If only the end is missing and there is no copy, xb journal accept-loss goes on without it.",
	CorruptSlot:      "Stop the servers of this journal. Put the slot back from a copy; servers that start now can only start from a snapshot behind it.",
	LostSlots:        "Servers end here rather than fill the slot; stop those that are left. Put it back from a copy, or from an older version of the object. To go on without it, delete every slot behind it, and the snapshots of such slots: all that was written there is lost.",
	TrimmedUnasked:   "Find out who deleted the slots. If that was not meant, put them back from a copy.",
	NoWayOn:          "Put back what is missing from a copy: without it no server can start on this journal.",
	VoidRecord:       "Every server skips a void record alike, so nothing is lost. Many of them, or ones of another journal, mean that something else writes here: look at who has access.",
	OtherFormat:      "Another version of xb writes here. Use that version, or a newer one: this one cannot tell what the records say, and its servers stop at them.",
	OtherHistory:     "Servers end at the first of these records. Whoever wrote them had seen other records before them, or more: slots were replaced or lost while a server ran, for instance by putting back an old copy, or a store told two writers that they hold one slot. What the records ask for is not in the state. Stop the servers, and compare the journal with its copies. To go on with what lies before them, delete the first of them and every slot behind it, and the snapshots of such slots: all that was written there is lost.",
	MarkDiffers:      "Two servers came to different states. Stop them, keep a copy of the journal, and report it: this is a defect of xb, or of a machine's memory.",
	OddMark:          "No server acts on it. Look at who wrote it.",
	SnapshotUnusable: "Servers pass it over and start from an older one or from slot 1. Nothing is lost while the journal has its slots.",
	SnapshotDisputed: "No server starts from it, and newer ones take its place. One server had a wrong state: it has stopped, and its log says so. If it happens again, look at the memory of that machine.",
	SnapshotDiffers:  "Stop the servers. Delete the blobs of this snapshot, so that none starts from it, and start them again: they go by the journal.",
	SnapshotPastTail: "The end of the journal is lost, with writes that clients were told of. Stop the servers, and put the slots back from a copy; if there is none, xb journal accept-loss goes on without them.",
	OrphanBlobs:      "Servers delete them once newer snapshots are there. They cost space and no more.",
	UnlistedBlobs:    "Delete what xb did not write and blobs of no snapshot, look at who can write here, and check again.",
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	if r.Journal != "" {
		r.writeSummary(&b)
	}
	r.writeFindings(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeSummary(b *strings.Builder) {
	fmt.Fprintf(b, "journal %s\n", r.Journal)
	if len(r.Applied) == 0 {
		b.WriteString("checked:    no slot\n")
	}
	for _, run := range r.Applied {
		fmt.Fprintf(b, "checked:    slots %d to %d", run.First, run.Last)
		if run.FromSnapshot > 0 {
			fmt.Fprintf(b, ", from the snapshot at slot %d", run.FromSnapshot)
		}
		b.WriteString("\n")
	}
	if r.TrimmedBelow > 0 {
		fmt.Fprintf(b, "trimmed:    below slot %d\n", r.TrimmedBelow)
	}
	requests := 0
	var kinds []string
	for kind, n := range sorted(r.Requests) {
		requests += n
		kinds = append(kinds, fmt.Sprintf("%d %s", n, kind))
	}
	fmt.Fprintf(b, "records:    %d (%s): %s, %s, %s, %d void\n", r.Records, size(r.Bytes),
		count(r.Batches, "batch"), count(r.Marks, "snapshot mark"), count(r.Floors, "floor"), r.VoidRecords)
	if requests > 0 {
		fmt.Fprintf(b, "requests:   %d (%s), %d with an error for their outcome\n", requests, strings.Join(kinds, ", "), r.FailedRequests)
	}
	if r.UncheckedMarks > 0 {
		fmt.Fprintf(b, "unchecked:  %s, of slots whose state is not known here\n", count(r.UncheckedMarks, "snapshot mark"))
	}
	fmt.Fprintf(b, "writers:    %d\n", len(r.Writers))
	var snaps []string
	for _, sn := range r.Snapshots {
		snaps = append(snaps, fmt.Sprintf("slot %d %s", sn.Slot, sn.Status))
	}
	if snaps == nil {
		snaps = []string{"none"}
	}
	fmt.Fprintf(b, "snapshots:  %s\n", strings.Join(snaps, ", "))
	fmt.Fprintf(b, "state:      slot %d, revision %d", r.LastSlot, r.Revision)
	if r.Compacted > 0 {
		fmt.Fprintf(b, " (compacted to %d)", r.Compacted)
	}
	fmt.Fprintf(b, ", %s (%s), %s\n", count(r.Keys, "key"), size(r.StateSize), count(r.Leases, "lease"))
	fmt.Fprintf(b, "state hash: %s\nchain:      %s\n", r.StateHash, r.Chain)
}

func (r *Report) writeFindings(b *strings.Builder) {
	if len(r.Findings) > 0 {
		b.WriteString("\n")
	}
	var todo []Code
	told := map[Code]bool{}
	for _, severity := range []Severity{Error, Warning, Info} {
		for _, f := range r.Findings {
			if f.Severity != severity {
				continue
			}
			fmt.Fprintf(b, "%s: %s%s\n", f.Severity, f.where(), f.Message)
			if advice[f.Code] != "" && f.Severity != Info && !told[f.Code] {
				told[f.Code] = true
				todo = append(todo, f.Code)
			}
		}
	}
	for code, n := range sorted(r.Omitted) {
		fmt.Fprintf(b, "and %d more of %s\n", n, code)
	}
	if len(todo) > 0 {
		b.WriteString("\nwhat to do:\n")
	}
	for _, code := range todo {
		fmt.Fprintf(b, "  %s: %s\n", code, advice[code])
	}
	b.WriteString("\n")
	switch {
	case r.Errors > 0 || r.Warnings > 0:
		fmt.Fprintf(b, "%s, %s\n", count(r.Errors, "error"), count(r.Warnings, "warning"))
	case r.Incomplete == "":
		b.WriteString("the journal is sound\n")
	}
	if r.Incomplete != "" {
		fmt.Fprintf(b, "not everything was checked: %s\n", r.Incomplete)
	}
}

// where says what a finding is about, as the start of a sentence.
func (f *Finding) where() string {
	switch {
	case f.Blob != "":
		return f.Blob + ": "
	case f.Slot > 0:
		return fmt.Sprintf("slot %d: ", f.Slot)
	}
	return ""
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
