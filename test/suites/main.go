// Command suites runs suites that others wrote against this project's store,
// and sums up what they said. It holds no test of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/internal/journal/sqllog/pgtest"
	"github.com/xbernetes/xbernetes/test/suites/store"
)

const usage = `usage: test/suites/run [-run REGEXP] [WHAT ...]

WHAT is any of
  memlog filelog s3log sqllog natslog
                         Kubernetes' storage suites on that journal
  kube-apiserver         an unmodified kube-apiserver on xb etcd
  check-perf             etcdctl check perf, load s; check-perf-all: s, m and l
  robustness             etcd's own validation of a history under faults
  kubernetes-e2e         Kubernetes' end-to-end specs against one server and against
                         two on S3; kubernetes-e2e-short: against one, without what
                         waits for minutes
Nothing: all but check-perf-all and kubernetes-e2e-short.

`

// own are the packages here that drive other programs.
var own = map[string]target{
	"kube-apiserver": {pkg: "./kubeapiserver"},
	"check-perf":     {pkg: "./checkperf", alone: true},
	"check-perf-all": {pkg: "./checkperf", alone: true, env: []string{"XB_SUITE_LOADS=s,m,l"}},
	"robustness":     {pkg: "./robustness"},

	"kubernetes-e2e":       {pkg: "./e2e"},
	"kubernetes-e2e-short": {pkg: "./e2e", flags: []string{"-short", "-skip=^TestTwoServers$"}},
}

// journals are the drivers that Kubernetes' suites run on.
var journals = []string{"memlog", "filelog", "s3log", "sqllog", "natslog"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	only := flag.String("run", "", "only the tests that match, as for go test")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(ctx, *only, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "suites: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, what []string) error {
	if len(what) == 0 {
		what = append(slices.Clone(journals), "kube-apiserver", "check-perf", "robustness", "kubernetes-e2e")
	}
	if slices.Contains(what, "sqllog") {
		db, err := pgtest.New()
		switch {
		case errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") == "":
			fmt.Println("sqllog is skipped: PostgreSQL's programs are not installed")
			what = slices.DeleteFunc(what, func(w string) bool { return w == "sqllog" })
		case err != nil:
			return err
		default:
			defer db.Remove()
			os.Setenv(store.Database, db.URL("postgres")) //nolint:errcheck // the name is one
		}
	}
	targets, err := plan(ctx, what)
	if err != nil {
		return err
	}
	results, err := testAll(ctx, targets, only)
	if err != nil {
		return err
	}
	summarize(os.Stdout, results)
	if !slices.ContainsFunc(results, func(r result) bool { return !r.good() }) {
		return nil
	}
	return fmt.Errorf("not all that was run has passed")
}

// atOnce is how many suites run side by side: they wait more than they compute.
const atOnce = 2

// testAll tests the targets: those of one name in their order, some names at
// once, and at the end, one by one, what must have the machine to itself.
func testAll(ctx context.Context, targets []target, only string) ([]result, error) {
	results := make([]result, len(targets))
	group, beside := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	var last []int
	for name, numbers := range byName(targets) {
		if own[name].alone {
			last = append(last, numbers...)
			continue
		}
		group.Go(func() (err error) {
			for _, i := range numbers {
				if results[i], err = targets[i].test(beside, only); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	for _, i := range last {
		if err == nil {
			results[i], err = targets[i].test(ctx, only)
		}
	}
	return results, err
}

// byName yields the numbers of the targets of each name, in the order of the
// names' first targets.
func byName(targets []target) iter.Seq2[string, []int] {
	var names []string
	numbers := map[string][]int{}
	for i, t := range targets {
		if numbers[t.name] == nil {
			names = append(names, t.name)
		}
		numbers[t.name] = append(numbers[t.name], i)
	}
	return func(yield func(string, []int) bool) {
		for _, name := range names {
			if !yield(name, numbers[name]) {
				return
			}
		}
	}
}

// plan says which packages to test for what was asked, and makes ready what
// they need.
func plan(ctx context.Context, what []string) ([]target, error) {
	var targets []target
	for _, w := range what {
		t, ok := own[w]
		switch {
		case ok:
			t.name = w
			targets = append(targets, t)
		case slices.Contains(journals, w):
			suites, err := kubernetesSuites(ctx, w)
			if err != nil {
				return nil, err
			}
			targets = append(targets, suites...)
		default:
			return nil, fmt.Errorf("%q is not known; want any of memlog, filelog, s3log, sqllog, natslog, kube-apiserver, check-perf, check-perf-all, robustness, kubernetes-e2e, kubernetes-e2e-short", w)
		}
	}
	return targets, nil
}

func summarize(to io.Writer, results []result) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSUITE\tPACKAGE\tPASSED\tFAILED\tSKIPPED\tLEFT OUT\tSECONDS")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%.0f\n", r.name, r.pkg, r.passed, len(r.failed), len(r.skipped), r.leftOut, r.seconds)
	}
	_ = w.Flush() // as with fmt.Fprintf: nothing is done about a terminal that takes no text
	for _, r := range results {
		for _, test := range r.failed {
			fmt.Fprintf(to, "failed: %s: %s %s\n", r.name, r.pkg, test)
		}
		for _, test := range r.unexplained {
			fmt.Fprintf(to, "skipped, and skips.txt does not say why: %s: %s %s\n", r.name, r.pkg, test)
		}
	}
}
