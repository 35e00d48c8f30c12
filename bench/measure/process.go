package measure

import (
	"context"
	"os"
	"time"

	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// Launch starts a process, with what it prints in a file in dir.
func Launch(dir, name string, env []string, argv ...string) (*process.Process, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return process.Start(process.Spec{Name: name, Dir: dir, Env: env, Argv: argv})
}

// End stops processes, each of which had time to end well.
func End(all ...*process.Process) {
	for _, p := range all {
		_ = p.Stop() // what it measured counts, not how it ended
	}
}

// WaitFor waits for a minute at most. It asks often, because some figures are
// how long a wait took.
func WaitFor(ctx context.Context, what string, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return wait.Every(ctx, 5*time.Millisecond, what, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return ok(ctx)
	})
}

// WaitLong waits for ten minutes at most.
func WaitLong(ctx context.Context, what string, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	return wait.Every(ctx, 10*time.Millisecond, what, func(context.Context) error { return ok() })
}
