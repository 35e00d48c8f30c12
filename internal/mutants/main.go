// Command mutants makes deliberate faults in the code, one at a time, and has the tests
// find each. A fault that no test finds is a gap in the tests, and fails the command; so
// does one under which a test hangs until its time is up, since a slow machine does that
// too. It changes no file of the tree: the compiler is told to read another text.
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
	var mu sync.Mutex // guards out and count
	count := map[outcome]int{}
	var g errgroup.Group
	g.SetLimit(jobs)
	for _, m := range faults {
		if !match.MatchString(m.name) {
			continue
		}
		g.Go(func() error {
			began := time.Now()
			got, by, err := m.try(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			count[got]++
			if by != "" {
				by = ": by " + by
			}
			fmt.Fprintf(out, "%-9s  %5s  %s%s\n", got, time.Since(began).Round(time.Second), m.name, by)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d found, %d not found, %d timed out\n", count[found], count[missed], count[timedOut])
	if count[missed]+count[timedOut] > 0 {
		return errors.New("a fault is not found by any test that ends by itself")
	}
	return nil
}

// outcome is what became of a fault.
type outcome int

const (
	missed   outcome = iota // all tests passed
	found                   // a test failed
	timedOut                // no test failed, and one did not end in time: a slow machine may be why
)

func (o outcome) String() string { return [...]string{"NOT FOUND", "found", "TIMED OUT"}[o] }

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

// try runs the tests on code with the fault, and returns what became of it, and by which
// test.
func (m *fault) try(ctx context.Context) (got outcome, by string, err error) {
	root, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/xbernetes/xbernetes")
	if err != nil {
		return missed, "", err
	}
	root = strings.TrimSpace(root)
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return missed, "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return missed, "", err
	}
	for _, test := range m.tests {
		pkg, args, _ := strings.Cut(test, " ")
		call := []string{"test", "-count=1", "-failfast", "-timeout=4m", "-overlay=" + overlay, pkg}
		if args != "" {
			call = append(append(call, "-args"), strings.Fields(args)...)
		}
		cmd := exec.CommandContext(ctx, "go", call...)
		cmd.Dir = root
		said, failure := cmd.CombinedOutput()
		if ctx.Err() != nil {
			return missed, "", ctx.Err()
		}
		if failure == nil {
			continue
		}
		switch of, name, err := judge(string(said)); {
		case err != nil:
			return missed, "", err
		case of == found:
			return found, pkg + name, nil
		default:
			got, by = of, pkg+name // another suite may still find it
		}
	}
	return got, by, nil
}

var (
	failed  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	expired = regexp.MustCompile(`(?m)^panic: test timed out after .*(?:\n\s+running tests:\n\s+(\S+))?`)
)

// judge says what the output of a suite that failed means, and which test it was, as far as
// the output tells. The error says that the code with the fault does not build.
func judge(said string) (got outcome, test string, err error) {
	if strings.Contains(said, "[build failed]") || strings.Contains(said, "[setup failed]") {
		return missed, "", fmt.Errorf("it does not build:\n%s", said)
	}
	over := expired.FindStringSubmatchIndex(said)
	if m := failed.FindStringSubmatchIndex(said); m != nil && (over == nil || m[0] < over[0]) {
		return found, " " + said[m[2]:m[3]], nil
	}
	if over == nil {
		return found, "", nil
	}
	if over[2] >= 0 {
		test = " " + said[over[2]:over[3]]
	}
	return timedOut, test, nil
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

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	return string(out), err
}
