package status

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"
)

// unnamed is how many servers without a name the text lists.
const unnamed = 10

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "journal %s, format %d\n", r.Journal, r.Format)
	if r.Last == 0 {
		fmt.Fprintf(t, "empty\n")
	} else {
		fmt.Fprintf(t, "slots %d to %d; the last %d records have %d bytes\n", r.First, r.Last, r.LookedAt, r.Bytes)
	}
	fmt.Fprintf(t, "\nSNAPSHOT\tBEHIND BY\tPARTS\tBYTES\tWRITTEN\tBY\tSTATE\n")
	for _, s := range r.Snapshots {
		who, size, state := "unknown", "unknown", "not disputed"
		if s.Writer != 0 {
			who = s.Writer.String()
		}
		if s.Bytes > 0 {
			size = fmt.Sprint(s.Bytes)
		}
		switch {
		case s.Unusable != "":
			state = "cannot be used"
		case s.Disputed:
			state = "disputed"
		}
		fmt.Fprintf(t, "slot %d\t%d slots\t%d\t%s\t%s\t%s\t%s\n", s.Slot, s.Behind, s.Parts, size, when(s.Written), who, state)
	}
	fmt.Fprintf(t, "\nSERVER\tACCOUNT\tWRITER\tVERSION\tSTARTED\tLAST RECORD\tBEHIND BY\n")
	left := 0
	for i, s := range r.Servers {
		if s.Name == "" && i >= unnamed {
			left++
			continue
		}
		last, behind := "unknown", "unknown"
		if s.Last > 0 {
			last, behind = fmt.Sprintf("slot %d", s.Last), fmt.Sprintf("%d slots", s.Behind)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", or(s.Name), or(s.Account), s.Writer, or(s.Version), when(s.Started), last, behind)
	}
	if left > 0 {
		fmt.Fprintf(t, "and %d more that gave no name\n", left)
	}
	if len(r.Problems) > 0 {
		fmt.Fprintf(t, "\n")
	}
	for _, p := range r.Problems {
		fmt.Fprintf(t, "WRONG: %s\n", p)
	}
	return t.Flush()
}

// when returns a time as people read it, or that it is not known.
func when(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format(time.RFC3339)
}

// or returns what is known, or that it is not.
func or(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// printable returns s on one line, without characters that a terminal acts on.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}
