// Command mutants makes deliberate faults in the code, one at a time, and has the tests
// find each. A fault that no test finds is a gap in the tests, and fails the command. It
// changes no file of the tree: the compiler is told to read another text.
//
//	mutants [-run REGEXP] [-jobs N]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/privatefile"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	only := flag.String("run", "", "only the faults whose name matches")
	jobs := flag.Int("jobs", 2, "how many faults to try side by side")
	flag.Parse()
	if err := run(ctx, os.Stdout, *only, *jobs); err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(1)
	}
}

// run tries the faults whose name matches, and fails if one is not found.
func run(ctx context.Context, out io.Writer, only string, jobs int) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	var mu sync.Mutex // guards out, tried and missed
	tried, missed := 0, 0
	var g errgroup.Group
	g.SetLimit(jobs)
	for _, m := range faults {
		if !match.MatchString(m.name) {
			continue
		}
		g.Go(func() error {
			began := time.Now()
			by, err := m.try(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			tried++
			took := time.Since(began).Round(time.Second)
			if by == "" {
				missed++
				fmt.Fprintf(out, "NOT FOUND  %5s  %s\n", took, m.name)
				return nil
			}
			fmt.Fprintf(out, "found      %5s  %s: by %s\n", took, m.name, by)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d faults, %d not found\n", tried, missed)
	if missed > 0 {
		return errors.New("a fault is not found by any test")
	}
	return nil
}

// fault is one deliberate fault: in file, the text from becomes to.
type fault struct {
	name     string
	file     string // from the root of the module
	from, to string
	// tests are what is to find it, in this order: packages, each with arguments for
	// its tests.
	tests []string
}

// mutated returns the text of the file with the fault in it.
func (m *fault) mutated(text string) (string, error) {
	if n := strings.Count(text, m.from); n != 1 {
		return "", fmt.Errorf("%s has the text to change %d times, want once:\n%s", m.file, n, m.from)
	}
	return strings.Replace(text, m.from, m.to, 1), nil
}

// try runs the tests on code with the fault, and returns which of them failed first; "":
// none did.
func (m *fault) try(ctx context.Context) (by string, err error) {
	root, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/xbernetes/xbernetes")
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	overlay, err := m.overlay(strings.TrimSpace(root), dir)
	if err != nil {
		return "", err
	}
	for _, test := range m.tests {
		pkg, args, _ := strings.Cut(test, " ")
		call := []string{"test", "-count=1", "-failfast", "-timeout=4m", "-overlay=" + overlay, pkg}
		if args != "" {
			call = append(append(call, "-args"), strings.Fields(args)...)
		}
		cmd := exec.CommandContext(ctx, "go", call...)
		cmd.Dir = strings.TrimSpace(root)
		said, err := cmd.CombinedOutput()
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err == nil:
			continue
		case strings.Contains(string(said), "[build failed]"), strings.Contains(string(said), "[setup failed]"):
			return "", fmt.Errorf("it does not build:\n%s", said)
		}
		return pkg + firstFailure(string(said)), nil
	}
	return "", nil
}

// overlay writes the text with the fault, and what tells the compiler to read it, into dir.
func (m *fault) overlay(root, dir string) (file string, err error) {
	path := filepath.Join(root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, err := m.mutated(string(text))
	if err != nil {
		return "", err
	}
	other, file := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: other}})
	if err != nil {
		return "", err
	}
	return file, errors.Join(privatefile.Write(other, []byte(changed)), privatefile.Write(file, replace))
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// firstFailure names the test that failed, as far as the output tells.
func firstFailure(said string) string {
	if m := failed.FindStringSubmatch(said); m != nil {
		return " " + m[1]
	}
	return ""
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	return string(out), err
}
