package usage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/xbernetes/xbernetes/internal/usage"
)

// fruit is a report.
type fruit struct {
	Name string `json:"name"`
}

func (f fruit) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "a fruit: %s\n", f.Name)
	return err
}

// says runs a program with one command, pick, and returns what it prints, or its error.
func says(t *testing.T, args ...string) string {
	t.Helper()
	var output usage.Output
	root := &cobra.Command{Use: "orchard", SilenceErrors: true, SilenceUsage: true}
	pick := &cobra.Command{Use: "pick", Short: "Pick a fruit", RunE: func(cmd *cobra.Command, _ []string) error {
		if err := output.Check(); err != nil {
			return err
		}
		return output.Write(cmd.OutOrStdout(), fruit{"pear"})
	}}
	output.Register(pick)
	pick.Flags().String("ladder", "", strings.Repeat("a long word on ladders ", 20))
	root.AddCommand(pick)
	usage.Apply(root)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(args)
	if err := root.ExecuteContext(t.Context()); err != nil {
		return err.Error()
	}
	return out.String()
}

// TestCommands: reports are printed as -o says, typos are told from what may be meant, and
// values are completed.
func TestCommands(t *testing.T) {
	for args, want := range map[string]string{
		"pick":                     "a fruit: pear\n",
		"pick -o json":             "{\n  \"name\": \"pear\"\n}\n",
		"pick -o yaml":             `-o is "yaml"; want text or json`,
		"pikc":                     `unknown command "pikc" for orchard; did you mean pick?`,
		"prune":                    `unknown command "prune" for orchard; see orchard --help`,
		"pick --lader x":           "unknown flag: --lader; did you mean --ladder?",
		"pick --basket":            "unknown flag: --basket; see orchard pick --help",
		"":                         "Pick a fruit",
		"__complete pick --output": "--output\t",
	} {
		got := says(t, strings.Fields(args)...)
		if !strings.Contains(got, want) {
			t.Errorf("orchard %s says %q, want %q", args, got, want)
		}
	}
	if got := says(t, "__complete", "pick", "-o", ""); !strings.HasPrefix(got, "text\njson\n") {
		t.Errorf("the values of -o are completed to %q", got)
	}
}

// TestHelpFits: no line of help is longer than it may be.
func TestHelpFits(t *testing.T) {
	for line := range strings.Lines(says(t, "pick", "--help")) {
		if len(line) > usage.MaxWidth+1 {
			t.Errorf("a line of help has %d columns: %q", len(line), line)
		}
	}
}

// TestBelow: every command of a tree is found.
func TestBelow(t *testing.T) {
	root, child := &cobra.Command{Use: "a"}, &cobra.Command{Use: "b"}
	child.AddCommand(&cobra.Command{Use: "c"})
	root.AddCommand(child, &cobra.Command{Use: "d"})
	found := map[string]bool{}
	for _, c := range usage.Below(root) {
		found[c.Name()] = true
	}
	if len(found) != 3 || !found["b"] || !found["c"] || !found["d"] {
		t.Errorf("below the root are %v, want b, c and d", found)
	}
}

func TestCheckAddress(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:6443":     "",
		"[::1]:6443":         "",
		"https://host:6443/": `--listen is a URL, "https://host:6443/"; write --listen host:6443`,
		"http://":            "write --listen HOST:PORT",
		"localhost":          `--listen is "localhost"; want HOST:PORT`,
	} {
		err := usage.CheckAddress("--listen", address)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("the address %q: %v, want %q", address, err, want)
		}
	}
}

// TestExitCode: a code survives what is said about its error later, and an error without one
// ends the program with 1.
func TestExitCode(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		code    int
		printed bool
	}{
		"no code": {errors.New("a failure"), 1, true},
		"a code":  {fmt.Errorf("wrapped: %w", usage.WithCode(errors.New("refused"), 2)), 2, true},
		"said":    {fmt.Errorf("wrapped: %w", usage.Exit(3)), 3, false},
	} {
		if code, printed := usage.ExitCode(test.err); code != test.code || printed != test.printed {
			t.Errorf("%s: exit code %d, printed: %v; want %d, %v", name, code, printed, test.code, test.printed)
		}
	}
}
