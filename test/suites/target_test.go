package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const said = `
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA/one","Output":"the cause\n"}
{"Action":"fail","Test":"TestA/one"}
{"Action":"pass","Test":"TestA/two"}
{"Action":"skip","Test":"TestA/three"}
{"Action":"skip","Test":"TestA/four"}
{"Action":"fail","Test":"TestA"}
{"Action":"fail","Test":"TestB"}
{"Action":"pass","Test":"TestB/sub"}
{"Action":"pass","Test":"TestC"}
{"Action":"attr","Test":"TestC","Key":"left-out","Value":"7"}
{"Action":"attr","Test":"TestC","Key":"other","Value":"9"}
not an event
{"Action":"fail","Elapsed":2.5}
`

func TestResult(t *testing.T) {
	log := newTestLog()
	for line := range strings.Lines(strings.TrimSpace(said)) {
		log.add([]byte(line))
	}
	r := log.result(target{skips: []skip{{test: "TestA/three"}, {leaveOut: true, test: "TestA/four"}}})
	if r.good() || r.passed != 3 || r.seconds != 2.5 || r.leftOut != 7 {
		t.Errorf("good %v, %d passed, %d left out, %v seconds", r.good(), r.passed, r.leftOut, r.seconds)
	}
	if want := []string{"TestA/one", "TestB"}; !reflect.DeepEqual(r.failed, want) {
		t.Errorf("failed: %v, want %v", r.failed, want)
	}
	if want := []string{"TestA/four"}; !reflect.DeepEqual(r.unexplained, want) {
		t.Errorf("unexplained: %v, want %v", r.unexplained, want)
	}
	if got := log.output["TestA/one"].String(); got != "the cause\n" {
		t.Errorf("output of a test that failed: %q", got)
	}
	if got := log.output[""].String(); !strings.Contains(got, "not an event") {
		t.Errorf("output of the package: %q", got)
	}
}

func TestGood(t *testing.T) {
	for name, r := range map[string]result{"failed": {failed: []string{"x"}}, "unexplained": {unexplained: []string{"x"}}, "broken": {broken: true}} {
		if r.good() {
			t.Errorf("a result with %s is good", name)
		}
	}
	if !(result{passed: 1, skipped: []string{"x"}}).good() {
		t.Error("a result where all passed is not good")
	}
}

func TestReadSkips(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skips.txt")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# about\n\nus memlog some/pkg TestA/b=1.5 it is so\n")
	skips, err := readSkips(path)
	if want := []skip{{true, "memlog", "some/pkg", "TestA/b=1.5", "it is so"}}; err != nil || !reflect.DeepEqual(skips, want) {
		t.Errorf("%v, %v; want %v", skips, err, want)
	}
	parts := strings.Split(skips[0].pattern(), "/") // as go test does
	if !regexp.MustCompile(parts[0]).MatchString("TestA") || !regexp.MustCompile(parts[1]).MatchString("b=1.5") || regexp.MustCompile(parts[1]).MatchString("b=1x5") {
		t.Errorf("pattern %s", skips[0].pattern())
	}
	for _, bad := range []string{"us memlog some/pkg TestA\n", "they * some/pkg TestA no reason\n"} {
		write(bad)
		if _, err := readSkips(path); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := readSkips("skips.txt"); err != nil {
		t.Error(err)
	}
}
