package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// target is one package to test, in one way.
type target struct {
	name  string   // what the user called it
	pkg   string   // as go test takes it
	flags []string // for go test, beside those of every target
	env   []string // beside the environment
	skips []skip   // that concern it
	alone bool     // it measures, and must have the machine to itself
}

// result is what came of a target. Only tests without subtests count.
type result struct {
	target
	passed      int
	failed      []string
	skipped     []string // by the suite itself
	unexplained []string // of those skipped, what skips.txt does not name
	leftOut     int      // tests that skips.txt, or a suite's own list, keeps from running
	seconds     float64
	broken      bool // it did not build, ended without an answer, or tested nothing
}

func (r result) good() bool { return !r.broken && len(r.failed) == 0 && len(r.unexplained) == 0 }

// test runs the target's tests, shows the output of those that fail, and is
// an error only where go test cannot be run.
func (t target) test(ctx context.Context, only string) (result, error) {
	fmt.Printf("=== %s: %s\n", t.name, t.pkg)
	args := append([]string{"test", "-json", "-count=1", "-vet=off", "-p=1", "-timeout=40m"}, t.flags...)
	if only != "" {
		args = append(args, "-run="+only)
	}
	var out []string
	for _, s := range t.skips {
		if s.leaveOut {
			out = append(out, s.pattern())
		}
	}
	if len(out) > 0 {
		args = append(args, "-skip="+strings.Join(out, "|"))
	}
	cmd := exec.CommandContext(ctx, "go", append(args, t.pkg)...)
	cmd.Env = append(os.Environ(), t.env...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	log := newTestLog()
	scanner := bufio.NewScanner(pipe)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		log.add(scanner.Bytes())
	}
	if err := scanner.Err(); err != nil {
		return result{}, fmt.Errorf("read what go test says: %w", err)
	}
	broken := cmd.Wait() != nil
	r := log.result(t)
	r.leftOut += len(out)
	r.broken = broken || only == "" && r.passed == 0
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	if !r.good() {
		log.showFailures(r)
	}
	return r, nil
}

// testLog gathers what go test -json says of one package.
type testLog struct {
	ended   map[string]string // by test: pass, fail or skip
	output  map[string]*bytes.Buffer
	seconds float64
	leftOut int // as the tests say themselves, by an attribute of that name
}

// leftOut is the attribute by which a test that has a list of its own says how
// many of others' tests it leaves out.
const leftOut = "left-out"

func newTestLog() *testLog {
	return &testLog{ended: map[string]string{}, output: map[string]*bytes.Buffer{}}
}

// add takes in one line. What is no event is kept as output of the package,
// whose test has the name "".
func (l *testLog) add(line []byte) {
	var event struct {
		Action, Test, Output string
		Key, Value           string // of an attribute
		Elapsed              float64
	}
	if err := json.Unmarshal(line, &event); err != nil {
		event.Output = string(line) + "\n"
	}
	if event.Output != "" {
		if l.output[event.Test] == nil {
			l.output[event.Test] = &bytes.Buffer{}
		}
		l.output[event.Test].WriteString(event.Output)
	}
	switch event.Action {
	case "attr":
		if n, err := strconv.Atoi(event.Value); event.Key == leftOut && err == nil {
			l.leftOut += n
		}
	case "pass", "fail", "skip":
		if event.Test == "" {
			l.seconds = event.Elapsed
		} else {
			l.ended[event.Test] = event.Action
		}
	}
}

// result counts the tests that have no subtests.
func (l *testLog) result(t target) result {
	parents := map[string]bool{}
	for test := range l.ended {
		for i := range test {
			if test[i] == '/' {
				parents[test[:i]] = true
			}
		}
	}
	r := result{target: t, seconds: l.seconds, leftOut: l.leftOut}
	for test, action := range l.ended {
		switch {
		case action == "fail" && (!parents[test] || !l.blamesChild(test)):
			r.failed = append(r.failed, test)
		case parents[test]:
		case action == "pass":
			r.passed++
		case action == "skip":
			r.skipped = append(r.skipped, test)
			if !slices.ContainsFunc(t.skips, func(s skip) bool { return !s.leaveOut && s.test == test }) {
				r.unexplained = append(r.unexplained, test)
			}
		}
	}
	slices.Sort(r.failed)
	slices.Sort(r.skipped)
	slices.Sort(r.unexplained)
	return r
}

// blamesChild says whether a test that failed has a subtest that did.
func (l *testLog) blamesChild(test string) bool {
	for other, action := range l.ended {
		if action == "fail" && strings.HasPrefix(other, test+"/") {
			return true
		}
	}
	return false
}

// showFailures prints what the tests that failed said, and what the package
// did where it broke without one.
func (l *testLog) showFailures(r result) {
	show := r.failed
	if len(show) == 0 && r.broken {
		show = []string{""}
	}
	var all bytes.Buffer // written at once: other targets print, too
	for _, test := range show {
		if out := l.output[test]; out != nil {
			all.Write(out.Bytes())
		}
	}
	fmt.Fprint(os.Stdout, all.String())
}
