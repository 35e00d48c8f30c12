package servicesync

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/lease"
	"github.com/xbernetes/xbernetes/internal/servicesync/model"
	"github.com/xbernetes/xbernetes/internal/servicesync/notebook"
)

// count keeps the number of published Services in the cluster's lease correct. A peer that
// sees fewer Services than that number takes none of them for deleted.
// Invariant: while a publication is announced and written, mu is held for reading.
type count struct {
	mu   sync.RWMutex
	last atomic.Int64 // when a publication was last announced or written, in Unix nanoseconds
}

// countedBy returns by how much a write changes the number of published Services.
func countedBy(w model.Write) int32 {
	_, counts := w.Object.(*v1alpha1.PublishedService)
	switch {
	case counts && w.Verb == model.Create:
		return 1
	case counts && w.Verb == model.Delete:
		return -1
	}
	return 0
}

// announce writes the new number into the lease, before the write that changes it. The
// caller must call done after its write, even if announce or the write failed.
func (c *count) announce(ctx context.Context, lease *lease.Keeper, more int32) (done func(), err error) {
	c.mu.RLock()
	c.touch()
	done = func() {
		c.touch()
		c.mu.RUnlock()
	}
	if err := lease.Announce(ctx, more); err != nil {
		lease.Retract(more)
		return done, fmt.Errorf("write in own lease how many services are published: %w", err)
	}
	return done, nil
}

func (c *count) touch() { c.last.Store(time.Now().UnixNano()) }

// recount sets the number to the count of the informer of publications. That corrects the
// number after announced writes of unknown outcome. recount waits until no publication has
// been written for as long as an informer may take to show it.
func (c *count) recount(lease *lease.Keeper, published func() int) {
	if time.Since(time.Unix(0, c.last.Load())) < notebook.Patience || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	lease.Set(func(spec *v1alpha1.ClusterLeaseSpec) {
		spec.Services = int32(published()) //nolint:gosec // Services of one cluster
	})
}
