package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// skip is one line of skips.txt: a test that does not run, and why.
type skip struct {
	leaveOut bool // by us; else the suite itself skips it
	journal  string
	pkg      string
	test     string
	reason   string
}

// pattern is what makes go test -skip leave out this test and no other.
func (s skip) pattern() string {
	parts := strings.Split(s.test, "/")
	for i := range parts {
		parts[i] = "^" + regexp.QuoteMeta(parts[i]) + "$"
	}
	return strings.Join(parts, "/")
}

// readSkips reads lines of five fields: who skips (us or suite), the journal
// or *, the package, the test, and the reason.
func readSkips(path string) ([]skip, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var skips []skip
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) < 5 || f[0] != "us" && f[0] != "suite" {
			return nil, fmt.Errorf("%s: %q is not: us|suite JOURNAL PACKAGE TEST REASON", path, line)
		}
		skips = append(skips, skip{leaveOut: f[0] == "us", journal: f[1], pkg: f[2], test: f[3], reason: strings.Join(f[4:], " ")})
	}
	return skips, nil
}
