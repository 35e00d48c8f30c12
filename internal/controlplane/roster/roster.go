// Package roster publishes in the store what other servers need to trust this
// one, and follows what they publish. It never writes another server's entry, and
// nothing secret.
package roster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/xbernetes/xbernetes/internal/backoff"
)

// Prefix is where the servers of a store have their entries. It lies outside of
// the prefix of Kubernetes objects, so that no request to the Kubernetes API can
// write it.
const Prefix = "/xbernetes/servers/"

// joinTimeout bounds one attempt to reach the store at a start.
const joinTimeout = 5 * time.Second

// A Roster keeps this server's entry in the store, and follows the entries of all
// servers.
type Roster struct {
	*board
	client *clientv3.Client
	log    *slog.Logger
	asked  limiter // reads of the store for an unknown key
}

// New makes the roster of the server with the id. It does not ask the store yet.
func New(client *clientv3.Client, id string, self Member, log *slog.Logger) *Roster {
	return &Roster{board: newBoard(id, self), client: client, log: log}
}

// Join reads the roster and enters this server in it, retrying until the store
// answers or ctx ends. If the store has the entry already, it writes nothing.
// store names the store in the log.
func (r *Roster) Join(ctx context.Context, store string) error {
	between := backoff.Backoff{First: 250 * time.Millisecond, Last: 5 * time.Second}
	for n := 1; ; n++ {
		err := r.tryJoin(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("enter server in roster: %w", err)
		}
		r.log.Warn("the store does not answer; trying again", "store", store, "error", err)
		if between.Pause(ctx, n) != nil {
			return fmt.Errorf("enter server in roster: %w", err)
		}
	}
}

func (r *Roster) tryJoin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	want, err := json.Marshal(r.self)
	if err != nil {
		return err
	}
	for range 3 {
		own, err := r.refresh(ctx)
		if err != nil {
			return err
		}
		if bytes.Equal(own.value, want) {
			return nil
		}
		// If the write succeeds and its answer is lost, the next round's read finds it.
		written, err := r.write(ctx, want, own.modRevision)
		if err != nil {
			return err
		}
		if written {
			_, err := r.refresh(ctx)
			return err
		}
	}
	return fmt.Errorf("another server writes the roster entry %q too: give each server an id of its own", r.id)
}

// write replaces this server's entry, if the store has it at that revision; 0
// means that the store must have none.
func (r *Roster) write(ctx context.Context, value []byte, modRevision int64) (bool, error) {
	key := Prefix + r.id
	resp, err := r.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", modRevision)).
		Then(clientv3.OpPut(key, string(value))).Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}

// An entry is a key of the roster as the store has it; zero if it has none.
type entry struct {
	value       []byte
	modRevision int64
}

// refresh reads the whole roster, and returns this server's entry.
func (r *Roster) refresh(ctx context.Context) (entry, error) {
	var own entry
	resp, err := r.client.Get(ctx, Prefix, clientv3.WithPrefix())
	if err != nil {
		return own, err
	}
	members := map[string]Member{}
	for _, kv := range resp.Kvs {
		id := strings.TrimPrefix(string(kv.Key), Prefix)
		if id == r.id {
			own = entry{kv.Value, kv.ModRevision}
		}
		r.put(members, id, kv.Value)
	}
	r.install(resp.Header.Revision, members)
	return own, nil
}

// put adds a member, unless its entry is corrupt.
func (r *Roster) put(members map[string]Member, id string, value []byte) {
	m, err := decodeMember(value)
	if err != nil {
		r.log.Error("ignoring a server in the roster: its entry is corrupt; delete the key", "key", Prefix+id, "error", err)
		delete(members, id)
		return
	}
	members[id] = m
}

// Run follows the roster until ctx ends.
func (r *Roster) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		r.log.Debug("roster watch ended; starting over", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		if _, err := r.refresh(ctx); err != nil {
			r.log.Debug("cannot read the roster", "error", err)
		}
	}
	return nil
}

func (r *Roster) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	revision, _ := r.look()
	for resp := range r.client.Watch(ctx, Prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1)) {
		if err := resp.Err(); err != nil {
			return err
		}
		r.apply(resp)
	}
	return nil
}

// apply takes in those events that are newer than what a refresh has seen. An
// event's own revision counts: the header's may be ahead of it.
func (r *Roster) apply(resp clientv3.WatchResponse) {
	seen, members := r.look()
	revision := seen
	for _, ev := range resp.Events {
		if ev.Kv.ModRevision <= seen {
			continue
		}
		revision = ev.Kv.ModRevision
		id := strings.TrimPrefix(string(ev.Kv.Key), Prefix)
		if ev.Type == clientv3.EventTypeDelete {
			delete(members, id)
		} else {
			r.put(members, id, ev.Kv.Value)
		}
	}
	if revision > seen {
		r.install(revision, members)
	}
}

// Find returns the key with the id; none if no server has published it. A key
// that is not known may belong to a server that joined a moment ago, whose entry
// the watch has not brought yet. So Find then reads the store, once a second at most.
func (r *Roster) Find(ctx context.Context, id string) []Key {
	t, _ := r.Current()
	if found := t.find(id); len(found) > 0 || !r.asked.allow(time.Second) {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := r.refresh(ctx); err != nil {
		r.log.Warn("cannot look up the key of a service-account token", "key", id, "error", err)
	}
	t, _ = r.Current()
	return t.find(id)
}

// A limiter spaces what several goroutines do.
type limiter struct {
	mu   sync.Mutex
	last time.Time
}

// allow reports whether the last time that it did is at least a period ago.
func (l *limiter) allow(period time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last) < period {
		return false
	}
	l.last = time.Now()
	return true
}
