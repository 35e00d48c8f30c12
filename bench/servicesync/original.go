package servicesync

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/cluster"
	"github.com/xbernetes/xbernetes/test/lab/wait"
)

const (
	xbSync       = "xb servicesync"
	originalSync = "k8s-endpoints-sync-controller"

	// The original sends 5 requests a second, of which an Endpoints object takes
	// three and a new Service two, and handles every object anew each 5 minutes: a
	// round must be over by then.
	originalServices = 50
	originalCalm     = 30  // changes, one a second
	originalBusy     = 200 // changes, 200 a second
)

// BesideOriginal measures xb beside the controller whose promises it keeps: a
// change of Endpoints in one cluster, until the EndpointSlice in another has it.
// Kubernetes' controllers make slices of Endpoints, for xb in the cluster of the
// change, for the original, which knows Endpoints only, in the other.
func BesideOriginal(ctx context.Context, cfg measure.Config) ([]measure.Comparison, error) {
	if cfg.Original == "" {
		fmt.Fprintln(os.Stderr, "original: left out; it needs -original")
		return nil, nil
	}
	services := max(10, int(originalServices*cfg.Scale))
	rows := []*measure.Comparison{
		measure.NewComparison(fmt.Sprintf("%d Services with %d endpoints appear at once, until each is elsewhere", services, endpointsEach), xbSync, originalSync),
		measure.NewComparison(fmt.Sprintf("%d endpoints change, one a second, until the slice elsewhere has it", originalCalm), xbSync, originalSync),
		measure.NewComparison(fmt.Sprintf("%d endpoints change within a second, until the slice elsewhere has it", originalBusy), xbSync, originalSync),
	}
	for round := range cfg.Rounds {
		for _, system := range []string{xbSync, originalSync} {
			fmt.Fprintf(os.Stderr, "original: round %d, %s\n", round+1, system)
			if err := originalRound(ctx, cfg, system, services, rows); err != nil {
				return measure.Values(rows), fmt.Errorf("%s: %w", system, err)
			}
		}
	}
	return measure.Values(rows), nil
}

func originalRound(ctx context.Context, cfg measure.Config, system string, services int, rows []*measure.Comparison) error {
	l, err := newLab(ctx, cfg, "original")
	if err != nil {
		return err
	}
	l.NoControllers = false
	s, err := newBed(ctx, l, false, "alpha", "beta")
	defer s.close()
	if err != nil {
		return err
	}
	s.changeEndpoints(services + 1)
	if system == xbSync {
		err = s.startXB(cfg)
	} else {
		err = s.startOriginal(ctx, cfg.Original)
	}
	if err != nil {
		return err
	}
	seen := newArrivals()
	stop, err := seen.follow(ctx, s.watcher)
	if err != nil {
		return err
	}
	defer stop()
	const first = 1 << 20 // a Service of its own: once that has arrived the system works
	seen.sent("first", first)
	if err := s.changeOne(ctx, services, first); err != nil {
		return err
	}
	if err := measure.WaitLong(ctx, "a first Service arrives", seen.none); err != nil {
		return err
	}
	from := 0
	for i, load := range []struct{ changes, perSecond int }{{services, 1000}, {originalCalm, 1}, {originalBusy, originalBusy}} {
		if err := wait.For(ctx, settleTime); err != nil {
			return err
		}
		measured, err := s.measure(ctx, seen, services, from, from+load.changes, load.perSecond)
		if err != nil {
			return err
		}
		rows[i].Add(system, measured)
		from += load.changes
	}
	return nil
}

// startOriginal starts the original in b, with a as its peer, and waits until it
// has taken the namespace over: it drops what it hears of others.
func (s *bed) startOriginal(ctx context.Context, program string) error {
	dir, err := s.peersOf(s.b, s.a)
	if err != nil {
		return err
	}
	argv, env, err := s.b.Original(program, dir)
	if err != nil {
		return err
	}
	env = append(env, "EXCLUDE=default,kube-system,kube-public,kube-node-lease")
	c, err := measure.Launch(s.lab.Dir, "original", env, argv...)
	if err != nil {
		return err
	}
	s.controllers = append(s.controllers, c)
	if err := measure.WaitLong(ctx, "the original has the namespace", func() error {
		ns, err := s.b.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err == nil && ns.Labels["replicated"] == "" {
			err = errors.New("it is not labelled")
		}
		return err
	}); err != nil {
		return err
	}
	return wait.For(ctx, settleTime)
}

// changeEndpoints has changes made in the Endpoints of so many Services. The first
// change of one makes the Service too.
func (s *bed) changeEndpoints(services int) {
	made := make([]bool, services) // changes of one Service follow each other
	s.changeOne = func(ctx context.Context, i, n int) error {
		name := fmt.Sprintf("s-%d", i)
		if !made[i] {
			if _, err := s.changer.CoreV1().Services(namespace).Create(ctx, benchService(name), metav1.CreateOptions{}); err != nil {
				return err
			}
			made[i] = true
		}
		//nolint:staticcheck // the original knows nothing but Endpoints
		endpoints := &corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subsets: []corev1.EndpointSubset{{
				Addresses: []corev1.EndpointAddress{{IP: changed(n)}},
				Ports:     []corev1.EndpointPort{{Name: "http", Port: cluster.Port, Protocol: corev1.ProtocolTCP}},
			}},
		}
		for e := range lastEndpoint {
			a := &endpoints.Subsets[0].Addresses
			*a = append(*a, corev1.EndpointAddress{IP: address(i, e)})
		}
		_, err := s.changer.CoreV1().Endpoints(namespace).Update(ctx, endpoints, metav1.UpdateOptions{}) // makes it where there is none
		return err
	}
}
