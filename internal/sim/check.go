package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// check holds what clients and watchers were told against what the journal holds.
func (w *world) check(ctx context.Context, acked, shown [][]change) error {
	left, err := w.left(ctx)
	if err != nil {
		return err
	}
	var breaches []error
	at, times := map[mvcc.Revision]change{}, map[string]int{}
	for _, c := range left {
		at[c.mod] = c
		if w.refused[c.value] {
			breaches = append(breaches, fmt.Errorf("the write of %s to %s is there, and its client was told that it was not made", c.value, c.key))
		}
		if times[c.value]++; times[c.value] > 1 {
			breaches = append(breaches, fmt.Errorf("the write of %s to %s happened %d times", c.value, c.key, times[c.value]))
		}
	}
	for _, list := range acked {
		for _, c := range list {
			if at[c.mod] != c {
				breaches = append(breaches, fmt.Errorf("the write of %s to %s was acknowledged at revision %d, which is of %+v", c.value, c.key, c.mod, at[c.mod]))
			}
		}
	}
	for i, list := range shown {
		for n, c := range list {
			if n >= len(left) || left[n] != c {
				breaches = append(breaches, fmt.Errorf("watcher %d was shown %+v as change %d of a history that has %d", i, c, n, len(left)))
				break
			}
		}
	}
	return errors.Join(breaches...)
}

// left starts a new server, which nothing disturbs, and returns all changes that it has.
func (w *world) left(ctx context.Context) ([]change, error) {
	log, err := w.cfg.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r := replica.New(replica.Config{Store: log, Notifier: notify.NewPolling(time.Millisecond, time.Millisecond), Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	changes, err := w.changes(ctx, r)
	cancel()
	if end := <-ended; end != nil {
		return nil, fmt.Errorf("a new server ended: %w", end)
	}
	return changes, err
}

// changes reads all changes out of a server, and compares its state with the others'.
func (w *world) changes(ctx context.Context, r *replica.Replica) ([]change, error) {
	select {
	case <-r.Ready():
	case <-r.Done():
		return nil, nil // Run says why
	}
	v, err := r.Linearizable(ctx)
	if err != nil {
		return nil, err
	}
	slot, hash, err := r.Hash(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.compare(slot, hash); err != nil {
		return nil, err
	}
	changes, err := v.Changes(1, v.Revision())
	left := make([]change, len(changes))
	for i, c := range changes {
		left[i] = change{c.KV.Mod, c.KV.Key, string(c.KV.Value)}
	}
	return left, err
}
