package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write docs/reference.md anew")

const referenceFile = "../../docs/reference.md"

// TestReference holds docs/reference.md to what the commands say of themselves.
func TestReference(t *testing.T) {
	t.Setenv("HOME", "/home/you")
	t.Setenv("XDG_DATA_HOME", "")
	var b strings.Builder
	b.WriteString("# Reference\n\nMade from the commands' own help by `make generate`; a test keeps it true.\n")
	describe(&b, newCommand())
	if *update {
		if err := os.WriteFile(referenceFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("docs/reference.md is not what the commands say; run make generate (-want +got):\n%s", diff)
	}
}

func describe(b *strings.Builder, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
		return
	}
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n```\n%s\n\nUsage: %s\n", cmd.CommandPath(), text, cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n%s\n", cmd.Example)
	}
	if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(b, "\nFlags:\n%s", flags.FlagUsagesWrapped(100))
	}
	b.WriteString("```\n")
	for _, sub := range cmd.Commands() {
		describe(b, sub)
	}
}

func TestJournalURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"file:///var/lib/xb":         "",
		"s3://bucket/prefix":         "",
		"mem:":                       "",
		"ftp://x/y":                  `scheme "ftp"`,
		"/var/lib/xb":                "no scheme",
		"file://relative/path":       "absolute",
		"file:///x?fsync=no":         "absolute",
		"s3://bu cket":               "malformed",
		"mysql://user:pw@host/db":    `scheme "mysql"`,
		"postgres://user@host/db":    "",
		"postgres://user:pw@host/db": "has a password",
		"nats://user@a,b:4223/name":  "",
		"nats://user:pw@host/name":   "has a password",
		"nats://host/name?what=pw":   "malformed",
		"nats+embedded:///var/xb":    "",
		"nats+embedded://var/xb":     "absolute",
	} {
		_, _, err := parseJournalURL(raw)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", raw, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want an error that says %s", raw, err, want)
		case err != nil && strings.Contains(err.Error(), "pw"):
			t.Errorf("%s: the error repeats the password: %v", raw, err)
		}
	}
}
