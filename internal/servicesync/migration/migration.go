// Package migration asks the controller of a cluster to have another cluster serve a
// Service, by the annotations that a person would write, and reports the progress. It
// moves nothing itself: the controllers do.
package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

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

// Migration is a request that another cluster serve a Service.
type Migration struct {
	Service types.NamespacedName
	// At is the cluster whose Service is annotated, and To the cluster that is to serve
	// the Service. They may be the same.
	At, To string

	// API is the API of At. Publications is the API where At publishes, in Namespace.
	API, Publications *access.API
	Namespace         string
	// Look reads all that the controller of At would decide on.
	Look func(context.Context, types.NamespacedName) (Seen, error)
}

// Seen is what a controller would decide on at one moment.
type Seen struct {
	Config model.Config
	Input  model.Input
	Silent []string // peers that could not be read, and are taken for silent
}

// annotate returns the Service with the annotations that ask for the migration.
func (m *Migration) annotate(svc *corev1.Service) *corev1.Service {
	svc = svc.DeepCopy()
	if svc.Annotations == nil {
		svc.Annotations = make(map[string]string)
	}
	mode := v1alpha1.ModeSource
	delete(svc.Annotations, v1alpha1.AnnotationTo)
	if m.To != m.At {
		mode = v1alpha1.ModeReceiver
		svc.Annotations[v1alpha1.AnnotationTo] = m.To
	}
	if svc.Annotations[v1alpha1.AnnotationAnswered] == string(mode) && !m.served(svc) {
		// The same was asked for before, and another cluster undid it: ask anew.
		delete(svc.Annotations, v1alpha1.AnnotationAnswered)
	}
	svc.Annotations[v1alpha1.AnnotationMode] = string(mode)
	return svc
}

// served reports whether the Service already has the role that the migration asks for.
func (m *Migration) served(svc *corev1.Service) bool {
	role := v1alpha1.Role(svc.Annotations[v1alpha1.AnnotationRole])
	if role == "" {
		role = v1alpha1.RoleSource
		if svc.Labels[v1alpha1.LabelReplica] != "" {
			role = v1alpha1.RoleReceiver
		}
	}
	if m.To == m.At {
		return role == v1alpha1.RoleSource
	}
	return role == v1alpha1.RoleReceiver
}

func (m *Migration) get(ctx context.Context) (*corev1.Service, error) {
	svc, err := m.API.Kube.CoreV1().Services(m.Service.Namespace).Get(ctx, m.Service.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("cluster %s has no Service %s", m.At, m.Service)
	case err != nil:
		return nil, errors.New(access.Explain(err, "cluster "+m.At))
	}
	return svc, nil
}

// checkHeir returns an error if To is no peer of At, since a migration to it would wait for
// ever. A peer that cannot be reached now is still a peer. If At's lease, which lists the
// peers, cannot be read, checkHeir returns nil.
func (m *Migration) checkHeir(ctx context.Context) error {
	if m.To == m.At {
		return nil
	}
	lease, err := lease.Read(ctx, m.Publications, m.Namespace, clusterset.ID(m.At))
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
	return fmt.Errorf("cluster %s knows no cluster %s: %s; name one that it reads with --to, or make %s a peer of it first", m.At, m.To, known, m.To)
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
		if _, err := m.API.Apply(ctx, model.Write{Verb: model.Update, Object: next, Before: svc}); err != nil {
			return fmt.Errorf("annotate Service %s in %s: %w", m.Service, m.At, err)
		}
		return nil
	})
}

// watchEvery is how often Wait reads the progress.
const watchEvery = 250 * time.Millisecond

// Wait calls step whenever there is progress, and returns when the migration is
// done, or ctx ends.
func (m *Migration) Wait(ctx context.Context, step func(Progress)) error {
	var last *Progress
	for {
		now, err := m.Progress(ctx)
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

// Follow writes the progress to out until the migration is done. If ctx ends first, the
// migration goes on all the same. On a terminal Follow rewrites one line.
func (m *Migration) Follow(ctx context.Context, out io.Writer, terminal bool) error {
	start, waits := time.Now(), ""
	err := m.Wait(ctx, func(p Progress) {
		line := fmt.Sprintf("%s %5s  %s", p, time.Since(start).Round(100*time.Millisecond), p.Waits)
		waits = p.Waits
		if terminal {
			fmt.Fprintf(out, "\r\x1b[K%s", line)
			if p.Done {
				fmt.Fprintln(out)
			}
			return
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	})
	if err != nil {
		if terminal {
			fmt.Fprintln(out)
		}
		if waits != "" {
			return fmt.Errorf("stopped waiting: it %s; the migration goes on", waits)
		}
		return fmt.Errorf("stopped waiting: %w; the migration goes on", err)
	}
	fmt.Fprintln(out, "Done.")
	return nil
}

// Progress returns how far the migration has come.
func (m *Migration) Progress(ctx context.Context) (Progress, error) {
	svc, err := m.get(ctx)
	if err != nil {
		return Progress{}, err
	}
	p := Progress{Role: v1alpha1.Role(svc.Annotations[v1alpha1.AnnotationRole])}
	published := &v1alpha1.PublishedService{}
	client, resource, err := m.Publications.Resource(published)
	if err != nil {
		return p, err
	}
	err = client.Get().Namespace(m.Namespace).Resource(resource).Name(clusterset.PublicationName(m.Service)).Do(ctx).Into(published)
	switch {
	case apierrors.IsNotFound(err):
		p.Waits = "waits for the controller of " + m.At
		return p, nil
	case err != nil:
		return p, errors.New(access.Explain(err, "where "+m.At+" publishes"))
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
