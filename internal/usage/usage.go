// Package usage gives the commands of a program one manner: help that fits the terminal,
// a word on what a typo may have meant, values to complete, addresses that are checked, the
// same flags for the log and for output, and exit codes. It knows no command.
package usage

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Apply gives cmd and every command below it help that fits the terminal, and errors that
// say what a typo may have meant.
func Apply(cmd *cobra.Command) {
	cobra.AddTemplateFunc("fit", func(fs *pflag.FlagSet) string { return fs.FlagUsagesWrapped(helpWidth()) })
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), "Flags.FlagUsages", "Flags | fit"))
	for _, c := range append(Below(cmd), cmd) {
		onFlagError := c.FlagErrorFunc()
		c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return onFlagError(c, suggestFlag(c, err)) })
		if c.HasSubCommands() {
			c.SuggestionsMinimumDistance, c.Args = 2, noSuchCommand
			if !c.Runnable() {
				c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
			}
		}
	}
}

// Below returns all commands below cmd.
func Below(cmd *cobra.Command) (all []*cobra.Command) {
	for _, c := range cmd.Commands() {
		all = append(append(all, Below(c)...), c)
	}
	return all
}

// MaxWidth is how many columns help takes at most.
const MaxWidth = 100

// helpWidth is how many columns help may take.
func helpWidth() int {
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		return max(40, min(width, MaxWidth))
	}
	return MaxWidth
}

// noSuchCommand refuses arguments of a command that takes none but commands.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		hint = "did you mean " + strings.Join(meant, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %s; %s", args[0], cmd.CommandPath(), hint)
}

// suggestFlag adds to the error of a flag that is not there the one that is
// most like it.
func suggestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	given, best := unknown.GetSpecifiedName(), ""
	closest := 1 + min(2, len(given)/2)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := distance(given, f.Name); d < closest {
			best, closest = f.Name, d
		}
	})
	if best == "" {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	}
	return fmt.Errorf("%w; did you mean --%s?", err, best)
}

// distance is how many letters must be added, removed or changed to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, corner+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// OneOf makes a flag that takes one of these values complete them.
func OneOf(cmd *cobra.Command, flag string, values ...string) {
	complete := cobra.FixedCompletions(slices.Clone(values), cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // there is no such flag: a mistake of ours
	}
}

// CheckAddress refuses what is not HOST:PORT, and says what to write where a
// URL was given.
func CheckAddress(flag, addr string) error {
	for _, scheme := range []string{"https://", "http://"} {
		if rest, ok := strings.CutPrefix(addr, scheme); ok {
			return fmt.Errorf("%s is a URL, %q; write %s %s", flag, addr, flag, cmp.Or(strings.TrimRight(rest, "/"), "HOST:PORT"))
		}
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("%s is %q; want HOST:PORT, such as 127.0.0.1:6443", flag, addr)
	}
	return nil
}
