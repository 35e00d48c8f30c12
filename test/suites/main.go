// Command suites runs suites that others wrote against this project's store,
// and sums up what they said. It holds no test of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
)

const usage = `usage: test/suites/run [-run REGEXP] [WHAT ...]

WHAT is any of
  memlog filelog s3log   Kubernetes' storage suites on that journal
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
	"check-perf":     {pkg: "./checkperf"},
	"check-perf-all": {pkg: "./checkperf", env: []string{"XB_SUITE_LOADS=s,m,l"}},
	"robustness":     {pkg: "./robustness"},

	"kubernetes-e2e":       {pkg: "./e2e"},
	"kubernetes-e2e-short": {pkg: "./e2e", flags: []string{"-short", "-skip=^TestTwoServers$"}},
}

// journals are the drivers that Kubernetes' suites run on.
var journals = []string{"memlog", "filelog", "s3log"}

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
	targets, err := plan(ctx, what)
	if err != nil {
		return err
	}
	failed := false
	var results []result
	for _, t := range targets {
		r, err := t.test(ctx, only)
		if err != nil {
			return err
		}
		failed = failed || !r.good()
		results = append(results, r)
	}
	summarize(os.Stdout, results)
	if failed {
		return fmt.Errorf("not all that was run has passed")
	}
	return nil
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
			return nil, fmt.Errorf("%q is not known; want any of memlog, filelog, s3log, kube-apiserver, check-perf, check-perf-all, robustness, kubernetes-e2e, kubernetes-e2e-short", w)
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
	w.Flush()
	for _, r := range results {
		for _, test := range r.failed {
			fmt.Fprintf(to, "failed: %s: %s %s\n", r.name, r.pkg, test)
		}
		for _, test := range r.unexplained {
			fmt.Fprintf(to, "skipped, and skips.txt does not say why: %s: %s %s\n", r.name, r.pkg, test)
		}
	}
}
