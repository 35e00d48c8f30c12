// Command replay runs the simulation so that a seed does the same each time: as a
// WebAssembly program, which has one thread, and whose clock and random numbers are the
// same in each run. It is some twenty times slower than go test ./internal/sim, which
// leaves to Go's scheduler what runs first.
//
//	replay [-seed N] [-seeds N]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	seed := flag.Uint64("seed", 0, "the seed of the first history; 0 draws one")
	seeds := flag.Int("seeds", 20, "how many histories to run")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	if err := replay(ctx, os.Stdout, *seed, *seeds); err != nil {
		fmt.Fprintf(os.Stderr, "replay: %v\n", err)
		os.Exit(1)
	}
}

// replay runs histories side by side. It prints what each of them met, and fails if one
// of them does.
func replay(ctx context.Context, out io.Writer, seed uint64, seeds int) error {
	s, err := build(ctx)
	if err != nil {
		return err
	}
	defer s.runtime.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it holds memory only
	results := make([]string, seeds)
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range seeds {
		g.Go(func() (err error) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			results[i], err = s.run(ctx, seed+uint64(i))
			return err
		})
	}
	err = g.Wait()
	for _, r := range results {
		fmt.Fprint(out, r)
	}
	return err
}

// simulation is the test of package sim, ready to run many times.
type simulation struct {
	runtime wazero.Runtime
	module  wazero.CompiledModule
}

func build(ctx context.Context) (*simulation, error) {
	dir, err := os.MkdirTemp("", "sim-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	file := filepath.Join(dir, "sim.wasm")
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-o", file, "github.com/xbernetes/xbernetes/internal/sim")
	compile.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the simulation: %w\n%s", err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &simulation{runtime: wazero.NewRuntime(ctx)}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, s.runtime); err != nil {
		return nil, err
	}
	s.module, err = s.runtime.CompileModule(ctx, code)
	return s, err
}

// run runs the history of one seed, and returns what it printed. wazero's clock and
// random numbers are the same in each run unless it is told otherwise.
func (s *simulation) run(ctx context.Context, seed uint64) (string, error) {
	var out bytes.Buffer
	number := strconv.FormatUint(seed, 10)
	_, err := s.runtime.InstantiateModule(ctx, s.module, wazero.NewModuleConfig().
		WithName("").WithStdout(&out).WithStderr(&out).
		WithArgs("sim.test", "-test.v", "-test.run", "^TestSimulation$", "-test.timeout", "0", "-seed", number, "-seeds", "1"))
	var exit *sys.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 0 {
		err = nil
	}
	if err != nil {
		return out.String(), fmt.Errorf("seed %s fails (%w); again: make sim SEED=%s SEEDS=1", number, err, number)
	}
	return out.String(), nil
}
