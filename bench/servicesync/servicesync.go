// Package servicesync measures how soon what changes in one cluster is known in another, by
// xb servicesync and by the controller that it follows. It never asks a controller what it
// did: arrivals are seen in the other cluster's API, or by a caller there.
package servicesync

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/process"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

const (
	namespace      = "bench"
	besideAnswers  = 50 // changes of endpoints a second, while answers are awaited
	syncServices   = 2000
	endpointsEach  = 10
	firstAnswers   = 40               // how often a first answered request is awaited
	changeTime     = 30 * time.Second // for which endpoints change at each rate
	directSync     = "direct"
	throughStore   = "through the store"
	lastEndpoint   = endpointsEach - 1
	perSliceWorker = 16
	settleTime     = 5 * time.Second
	proxyPeriod    = 100 * time.Millisecond // kube-proxy's own default is 1 s
)

// changesPerSec are the rates at which endpoints change, all over the Services.
var changesPerSec = []int{100, 200}

// propagation is what is measured of one transport beside the other.
type propagation struct {
	slices []*measure.Comparison // for each rate
	answer *measure.Comparison
}

func (p *propagation) rows() []measure.Comparison {
	var rows []measure.Comparison
	for _, c := range append(slices.Clone(p.slices), p.answer) {
		rows = append(rows, *c)
	}
	return rows
}

// Propagation measures how long a change of an endpoint in one cluster takes to
// be in the EndpointSlice of another, and to be behind the first request that
// is answered.
func Propagation(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	p := &propagation{answer: measure.NewComparison("an endpoint appears, until a request elsewhere is answered", directSync, throughStore)}
	for _, rate := range changesPerSec {
		p.slices = append(p.slices, measure.NewComparison(fmt.Sprintf("an endpoint changes, until the slice elsewhere has it, %d a second", rate), directSync, throughStore))
	}
	for round := range cfg.Rounds {
		for _, transport := range []string{directSync, throughStore} {
			fmt.Fprintf(os.Stderr, "servicesync: round %d, %s\n", round+1, transport)
			if err := p.round(ctx, cfg, transport); err != nil {
				return p.rows(), fmt.Errorf("%s: %w", transport, err)
			}
		}
	}
	return p.rows(), nil
}

// round measures one transport once.
func (p *propagation) round(ctx context.Context, cfg measure.Config, transport string) error {
	services := max(50, int(syncServices*cfg.Scale))
	s, err := startSync(ctx, cfg, transport, services)
	if err != nil {
		return err
	}
	defer s.close()
	seen := newArrivals()
	stop, err := seen.follow(ctx, s.watcher)
	if err != nil {
		return err
	}
	defer stop()
	if err := measure.WaitLong(ctx, "the Services are imported", func() error { return seen.atLeast(services) }); err != nil {
		return err
	}
	from := 0
	for i, rate := range changesPerSec {
		// What the import, or the rate before, leaves to do is not measured.
		if err := wait.For(ctx, settleTime); err != nil {
			return err
		}
		to := from + max(rate, int(changeTime.Seconds()*float64(rate)*cfg.Scale))
		measured, err := s.measure(ctx, seen, services, from, to, rate)
		if err != nil {
			return err
		}
		p.slices[i].Add(transport, measured)
		from = to
	}
	return p.answerWhileChanging(ctx, s, seen, services, from, transport)
}

// measure makes changes number from to to-1 and waits until they have arrived.
func (s *bed) measure(ctx context.Context, seen *arrivals, services, from, to, perSecond int) (measure.Sample, error) {
	before, err := process.UsageOf(s.controllers...)
	if err != nil {
		return measure.Sample{}, err
	}
	seen.forget()
	if err := s.change(ctx, seen, services, from, to, perSecond); err != nil {
		return measure.Sample{}, err
	}
	if err := measure.WaitLong(ctx, "all changes have arrived", seen.none); err != nil {
		return measure.Sample{}, err
	}
	after, err := process.UsageOf(s.controllers...)
	took := seen.durations()
	return measure.Sample{
		PerSecond: float64(perSecond), P50: measure.Percentile(took, 50), P99: measure.Percentile(took, 99),
		CPUPerOp: (after.CPU - before.CPU) / time.Duration(to-from), PeakMemory: after.Peak,
	}, err
}

// answerWhileChanging measures first answers while changes go on. The node comes
// only now: its kube-proxy, which writes rules several times a second, would be
// measured with the slices, and is on other machines elsewhere. Beside it and the
// callers, two cores carry fewer changes.
func (p *propagation) answerWhileChanging(ctx context.Context, s *bed, seen *arrivals, services, from int, transport string) error {
	if err := cluster.CanHaveNodes(); err != nil {
		fmt.Fprintln(os.Stderr, "servicesync: no first answers:", err)
		return nil
	}
	// The slices of the cluster's DNS are theirs.
	if err := s.b.StartControllers(ctx); err != nil {
		return err
	}
	s.b.ProxyPeriod = proxyPeriod
	if err := s.b.AddNode(ctx); err != nil {
		return err
	}
	changing, end := context.WithCancel(ctx)
	defer end()
	background := make(chan error, 1)
	go func() { background <- s.change(changing, seen, services, from, math.MaxInt, besideAnswers) }()
	answered, err := s.firstAnswers(ctx)
	end()
	if ended := <-background; !errors.Is(ended, context.Canceled) {
		err = errors.Join(err, ended)
	}
	p.answer.Add(transport, measure.Sample{P50: measure.Percentile(answered, 50), P99: measure.Percentile(answered, 99)})
	return err
}

// change replaces the last endpoint of one Service after the other, as change
// number from to to-1, perSecond of them, without waiting for any answer but that
// to the last change of the same Service: another order would leave an older one
// there for good.
func (s *bed) change(ctx context.Context, seen *arrivals, services, from, to, perSecond int) error {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	var changes errgroup.Group
	last := make([]chan struct{}, services)
	for n := from; n < to; n++ {
		select {
		case <-ctx.Done():
			_ = changes.Wait()
			return ctx.Err()
		case <-tick.C:
		}
		i, done := n%services, make(chan struct{})
		before := last[i]
		last[i] = done
		changes.Go(func() error {
			defer close(done)
			if before != nil {
				<-before
			}
			seen.sent(fmt.Sprintf("s-%d", i), n)
			if err := s.changeOne(context.WithoutCancel(ctx), i, n); err != nil {
				return fmt.Errorf("change %d: %w", n, err)
			}
			return nil
		})
	}
	return changes.Wait()
}
