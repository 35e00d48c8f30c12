package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/test/lab/network"
)

// Need skips the test if something is missing, with a word, and fails it in CI.
func Need(t testing.TB, missing error) {
	t.Helper()
	switch {
	case missing == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("missing in CI: %v", missing)
	default:
		t.Skipf("skipped: %v", missing)
	}
}

// Spawn starts a program for the length of a test. The test fails if the
// program ends by itself, and shows the end of what it printed if it fails.
func Spawn(t testing.TB, in *network.Namespace, name string, env []string, argv ...string) *Process {
	t.Helper()
	p, err := Start(Spec{Name: name, Dir: t.TempDir(), In: in, Env: env, Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		died := p.Died()
		p.Kill()
		if died != nil {
			t.Errorf("%s ended by itself: %v", name, p.err)
		}
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, p.Printed(200))
		}
	})
	return p
}

// StopWell is Stop for a test, which fails if the process does not end well.
func (p *Process) StopWell(t testing.TB) {
	t.Helper()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

// Run runs a program to its end and returns what it printed on standard output.
// The error has what it printed on standard error.
func Run(t testing.TB, in *network.Namespace, env []string, stdin string, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := in.Command(ctx, argv...)
	cmd.Env = append(PlainEnv(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if err != nil {
		err = errors.Join(fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(errOut.String())), ctx.Err())
	}
	return out.String(), err
}
