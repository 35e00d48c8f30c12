package servicesync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientretry "k8s.io/client-go/util/retry"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/lease"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
)

// Migration is the wish that a Service be served by another cluster.
type Migration struct {
	Service types.NamespacedName
	// At is the cluster whose Service is annotated, and To the one that shall
	// serve; they may be one.
	At access.Cluster
	To string

	term *term
	api  *access.API
}

// NewMigration prepares one, as a process with that configuration would see it;
// cfg.Clusters is the cluster whose Service is annotated.
func NewMigration(cfg Config, service types.NamespacedName, to string) (*Migration, error) {
	cfg.Logger, cfg.Metrics = slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	m := &Migration{Service: service, At: cfg.Clusters[0], To: to}
	m.term = &term{cfg: cfg, cluster: m.At, metrics: newMetrics(cfg.Metrics), log: cfg.Logger}
	if err := m.term.connect(); err != nil {
		return nil, err
	}
	m.api = m.term.own
	return m, nil
}

// annotate is the Service with the annotations that ask for the migration.
func (m *Migration) annotate(svc *corev1.Service) *corev1.Service {
	svc = svc.DeepCopy()
	if svc.Annotations == nil {
		svc.Annotations = make(map[string]string)
	}
	mode := v1alpha1.ModeSource
	delete(svc.Annotations, v1alpha1.AnnotationTo)
	if m.To != m.At.Name {
		mode = v1alpha1.ModeReceiver
		svc.Annotations[v1alpha1.AnnotationTo] = m.To
	}
	if svc.Annotations[v1alpha1.AnnotationAnswered] == string(mode) && !m.served(svc) {
		// It was asked for before, and undone from elsewhere: it is a new wish.
		delete(svc.Annotations, v1alpha1.AnnotationAnswered)
	}
	svc.Annotations[v1alpha1.AnnotationMode] = string(mode)
	return svc
}

// served tells whether the Service has the role already that is asked for.
func (m *Migration) served(svc *corev1.Service) bool {
	role := v1alpha1.Role(svc.Annotations[v1alpha1.AnnotationRole])
	if role == "" {
		role = v1alpha1.RoleSource
		if svc.Labels[v1alpha1.LabelReplica] != "" {
			role = v1alpha1.RoleReceiver
		}
	}
	if m.To == m.At.Name {
		return role == v1alpha1.RoleSource
	}
	return role == v1alpha1.RoleReceiver
}

func (m *Migration) get(ctx context.Context) (*corev1.Service, error) {
	svc, err := m.api.Kube.CoreV1().Services(m.Service.Namespace).Get(ctx, m.Service.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("cluster %s has no Service %s", m.At.Name, m.Service)
	case err != nil:
		return nil, errors.New(access.Explain(err, "cluster "+m.At.Name))
	}
	return svc, nil
}

// checkHeir refuses to wait for a cluster that this one knows nothing of. One that
// is not reached now is known all the same; where the lease that says so cannot be
// read, nothing is refused.
func (m *Migration) checkHeir(ctx context.Context) error {
	if m.To == m.At.Name {
		return nil
	}
	lease, err := lease.New(m.term.publications, m.term.namespace, model.ClusterID(m.At.Name), m.term.cfg.Lease, m.term.log).Read(ctx)
	if err != nil {
		return nil //nolint:nilerr // the controller says what it waits for
	}
	named := func(p v1alpha1.PeerStatus) bool { return p.Cluster == m.To }
	if slices.Contains(lease.Spec.Peers, m.To) || slices.ContainsFunc(lease.Status.Peers, named) {
		return nil
	}
	known := "it reads no other cluster"
	if len(lease.Spec.Peers) > 0 {
		known = "it reads " + strings.Join(lease.Spec.Peers, ", ")
	}
	return fmt.Errorf("cluster %s knows no cluster %s: %s; name one that it reads with --to, or make %s a peer of it first", m.At.Name, m.To, known, m.To)
}

// Start asks for the migration.
func (m *Migration) Start(ctx context.Context) error {
	if err := m.checkHeir(ctx); err != nil {
		return err
	}
	// The controller may write the Service meanwhile, to end an earlier migration.
	return clientretry.RetryOnConflict(clientretry.DefaultBackoff, func() error {
		svc, err := m.get(ctx)
		if err != nil {
			return err
		}
		next := m.annotate(svc)
		if _, err := m.api.Apply(ctx, model.Write{Verb: model.Update, Object: next, Before: svc}); err != nil {
			return fmt.Errorf("annotate Service %s in %s: %w", m.Service, m.At.Name, err)
		}
		return nil
	})
}

// Progress is how far a migration has come.
type Progress struct {
	Phase v1alpha1.Phase // of the handover; "" if this cluster hands nothing over
	Role  v1alpha1.Role  // that the Service has at this cluster
	Waits string         // what for, if the controller has said so
	Done  bool
}

// watchEvery is how often progress is looked at.
const watchEvery = 250 * time.Millisecond

// Wait calls step whenever there is progress, and returns when the migration is
// done, or ctx ends.
func (m *Migration) Wait(ctx context.Context, step func(Progress)) error {
	var last *Progress
	for {
		now, err := m.progress(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if last == nil || now != *last {
			step(now)
			last = &now
		}
		if now.Done {
			return nil
		}
		access.Pause(ctx, watchEvery)
	}
}

func (m *Migration) progress(ctx context.Context) (Progress, error) {
	svc, err := m.get(ctx)
	if err != nil {
		return Progress{}, err
	}
	p := Progress{Role: v1alpha1.Role(svc.Annotations[v1alpha1.AnnotationRole])}
	published := &v1alpha1.PublishedService{}
	client, resource, err := m.term.publications.Resource(published)
	if err != nil {
		return p, err
	}
	err = client.Get().Namespace(m.term.namespace).Resource(resource).Name(clusterset.PublicationName(m.Service)).Do(ctx).Into(published)
	switch {
	case apierrors.IsNotFound(err):
		p.Waits = "waits for the controller of " + m.At.Name
		return p, nil
	case err != nil:
		return p, errors.New(access.Explain(err, "where "+m.At.Name+" publishes"))
	}
	p.Role = published.Spec.Role
	for _, c := range published.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			p.Waits = c.Message
		}
	}
	h := published.Spec.Handover
	if h != nil && h.Phase == v1alpha1.PhaseCommitted {
		p.Waits = "" // the condition is that of preparing, until the status is written again
	}
	over := h == nil || h.Phase == v1alpha1.PhaseDone || h.Phase == v1alpha1.PhaseWithdrawn
	asked := svc.Annotations[v1alpha1.AnnotationAnswered] != svc.Annotations[v1alpha1.AnnotationMode]
	p.Done = over && !asked && !published.Spec.Asked && m.served(svc)
	switch {
	case !over:
		p.Phase = h.Phase
	case p.Done && h != nil && h.Phase == v1alpha1.PhaseDone:
		p.Phase = h.Phase // else it is the phase of an earlier migration
	}
	return p, nil
}

// Preview writes what the migration would have written first, and what it would
// wait for. Nothing is written to any cluster.
func (m *Migration) Preview(ctx context.Context, out io.Writer) error {
	svc, err := m.get(ctx)
	if err != nil {
		return err
	}
	if err := m.checkHeir(ctx); err != nil {
		return err
	}
	next := m.annotate(svc)
	fmt.Fprintf(out, "%s: update Service %s: ask for the migration\n", m.At.Name, m.Service)
	if err := printDifference(out, svc, next); err != nil {
		return err
	}
	return m.preview(ctx, func(in model.Input, cfg model.Config, missing []string) error {
		in.Local.Service = next
		result := model.Decide(cfg, in)
		for _, w := range result.Writes {
			fmt.Fprintf(out, "%s: %s %s %s: %s\n", m.At.Name, w.Verb, access.KindOf(w.Object), access.ObjectName(w.Object), w.Why)
			if w.Before != nil {
				if err := printDifference(out, w.Before, w.Object); err != nil {
					return err
				}
			}
		}
		for _, e := range result.Events {
			fmt.Fprintf(out, "%s: %s: %s\n", m.At.Name, e.Reason, e.Note)
		}
		if result.Facts.Holds != "" {
			fmt.Fprintf(out, "Then it %s.\n", result.Facts.Holds)
		}
		for _, id := range missing {
			fmt.Fprintf(out, "Peer %s could not be read, and is taken for silent here.\n", id)
		}
		fmt.Fprintln(out, "Nothing was written.")
		return nil
	})
}

func printDifference(out io.Writer, before, after model.Object) error {
	patch, err := access.Difference(before, after)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return fmt.Errorf("read own patch: %w", err)
	}
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion")
		delete(meta, "uid")
		if len(meta) == 0 {
			delete(fields, "metadata")
		}
	}
	text, err := json.MarshalIndent(fields, "    ", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "    %s\n", text)
	return err
}

// previewPatience is how long a preview waits for peers.
const previewPatience = 10 * time.Second

// preview reads what the controller reads, and shows it to decide.
func (m *Migration) preview(ctx context.Context, decide func(in model.Input, cfg model.Config, missing []string) error) error {
	s, err := m.term.site(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	g, reading := errgroup.WithContext(ctx)
	defer func() {
		stop()
		s.queue.ShutDown()
		_ = g.Wait() // it was stopped
	}()
	for _, read := range s.views.reads() {
		g.Go(func() error { read(reading); return nil })
	}
	if err := s.load(reading); err != nil {
		return err
	}
	g.Go(func() error { return s.roster.Run(reading) })
	soon, cancel := context.WithTimeout(reading, previewPatience)
	defer cancel()
	missing := s.roster.AwaitRead(soon)
	return decide(s.input(m.Service, time.Now()), s.model, missing)
}
