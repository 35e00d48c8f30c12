package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/bench/store"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// toolLoads are what etcd's own benchmark tool asks of an etcd API: a workload, how many
// operations it has, and the tool's arguments for it.
var toolLoads = []struct {
	name  string
	total int
	args  []string
}{
	{"put, 1 client", 1_500, []string{"put", "--clients=1", "--conns=1", "--key-space-size=10000", "--val-size=256"}},
	{"put, 100 clients", 40_000, []string{"put", "--clients=100", "--conns=100", "--key-space-size=10000", "--val-size=256"}},
	{"put, 1,000 clients", 50_000, []string{"put", "--clients=1000", "--conns=100", "--key-space-size=10000", "--val-size=256"}},
	{"transaction of a put, 100 clients", 30_000, []string{"txn-put", "--clients=100", "--conns=100", "--key-space-size=10000", "--val-size=256"}},
	{"get, linearizable, 100 clients", 60_000, []string{"range", toolKey, "--clients=100", "--conns=100", "--consistency=l"}},
	{"get, serializable, 100 clients", 60_000, []string{"range", toolKey, "--clients=100", "--conns=100", "--consistency=s"}},
}

// toolKey is what the tool reads.
const toolKey = "/bench/read"

// ByTool measures the etcd API on a file journal against etcd on the same disk, with the load
// and the figures of etcd's own benchmark tool.
func ByTool(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	rows := make([]measure.Comparison, len(toolLoads))
	for i, l := range toolLoads {
		rows[i] = *measure.NewComparison(l.name, store.XBFile.Name, store.Etcd.Name)
	}
	for round := range cfg.Rounds {
		for _, k := range []store.Kind{store.XBFile, store.Etcd} {
			fmt.Fprintf(os.Stderr, "etcd-tool: round %d, %s\n", round+1, k.Name)
			if err := toolOn(ctx, cfg, k, rows); err != nil {
				return rows, fmt.Errorf("%s: %w", k.Name, err)
			}
		}
	}
	return rows, nil
}

// toolOn starts a store on an empty directory, and runs the tool on it, one load after the other.
func toolOn(ctx context.Context, cfg measure.Config, k store.Kind, rows []measure.Comparison) error {
	dir := filepath.Join(cfg.Dir, "store")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	s, err := k.Start(cfg, dir)
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := s.Ready(ctx); err != nil {
		return err
	}
	c, closeAll, err := s.Clients(1)
	if err != nil {
		return err
	}
	defer closeAll()
	if _, err := c[0].Put(ctx, toolKey, string(measure.RandomBytes(valueSize))); err != nil {
		return err
	}
	for i, l := range toolLoads {
		total := max(1, int(float64(l.total)*cfg.Scale))
		before, err := process.UsageOf(s.Servers...)
		if err != nil {
			return err
		}
		args := append([]string{"--endpoints=" + s.Endpoint, "--precise", "--total=" + strconv.Itoa(total)}, l.args...)
		out, err := exec.CommandContext(ctx, filepath.Join(cfg.Bin, "benchmark"), args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", l.name, err, out)
		}
		m, err := parseTool(out)
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", l.name, err, out)
		}
		after, err := process.UsageOf(s.Servers...)
		if err != nil {
			return err
		}
		m.CPUPerOp = (after.CPU - before.CPU) / time.Duration(total)
		m.PeakMemory = after.Peak
		m.Written = after.Written - before.Written
		rows[i].Add(k.Name, m)
	}
	return nil
}

var (
	toolRate   = regexp.MustCompile(`Requests/sec:\s+(\S+)`)
	toolP50    = regexp.MustCompile(`50% in (\S+) secs`)
	toolP99    = regexp.MustCompile(`99% in (\S+) secs`)
	toolErrors = regexp.MustCompile(`Error distribution`)
)

// parseTool reads what the tool prints. A request that failed makes all figures worthless.
func parseTool(out []byte) (measure.Sample, error) {
	if toolErrors.Match(out) {
		return measure.Sample{}, errors.New("requests failed")
	}
	var v [3]float64
	for i, re := range []*regexp.Regexp{toolRate, toolP50, toolP99} {
		found := re.FindSubmatch(out)
		if found == nil {
			return measure.Sample{}, fmt.Errorf("the tool printed no %s", re)
		}
		var err error
		if v[i], err = strconv.ParseFloat(string(found[1]), 64); err != nil {
			return measure.Sample{}, err
		}
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return measure.Sample{PerSecond: v[0], P50: seconds(v[1]), P99: seconds(v[2])}, nil
}
