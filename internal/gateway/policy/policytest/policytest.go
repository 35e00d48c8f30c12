// Package policytest is a core server and an inventory in memory, for the tests of
// the policies. No product code imports it.
package policytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/xbernetes/xbernetes/internal/gateway/policy/ledger"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/namespaces"
	"github.com/xbernetes/xbernetes/internal/gateway/policy/quota"
)

// Key is the ledger of Memory's one namespace, "ns".
var Key = ledger.Key{Namespace: "ns", UID: "uid"}

// Memory is a core server with one namespace, and what servers hold in it. It
// implements ledger.Store, namespaces.Core, namespaces.Inventory, quota.Inventory
// and quota.Limits. Set its fields before it is used.
type Memory struct {
	Namespace namespaces.Namespace
	Down      bool  // the core server does not answer for ledgers
	Objects   int64 // how many exist of any resource
	Hard      int64 // the quota of any resource

	mu       sync.Mutex
	ledgers  map[ledger.Key][2]string // text and version; guarded by mu
	versions int                      // guarded by mu
}

// Put stores a ledger.
func (m *Memory) Put(k ledger.Key, l *ledger.Ledger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledgers == nil {
		m.ledgers = map[ledger.Key][2]string{}
	}
	m.versions++
	m.ledgers[k] = [2]string{l.Encode(), fmt.Sprint(m.versions)}
}

// Ledger returns a ledger; nil if there is none.
func (m *Memory) Ledger(t testing.TB, k ledger.Key) *ledger.Ledger {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, ok := m.ledgers[k]
	if !ok {
		return nil
	}
	l, err := ledger.Parse(stored[0])
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Read implements ledger.Store.
func (m *Memory) Read(_ context.Context, k ledger.Key) (string, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Down {
		return "", "", errors.New("connection refused")
	}
	l, ok := m.ledgers[k]
	if !ok {
		return "", "", ledger.ErrNotFound
	}
	return l[0], l[1], nil
}

// Write implements ledger.Store.
func (m *Memory) Write(_ context.Context, k ledger.Key, text, version string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Down {
		return "", errors.New("connection refused")
	}
	if m.ledgers[k][1] != version {
		return "", ledger.ErrConflict
	}
	if m.ledgers == nil {
		m.ledgers = map[ledger.Key][2]string{}
	}
	m.versions++
	next := fmt.Sprint(m.versions)
	m.ledgers[k] = [2]string{text, next}
	return next, nil
}

// Remove implements ledger.Store.
func (m *Memory) Remove(_ context.Context, k ledger.Key, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ledgers, k)
	return nil
}

// Cached implements namespaces.Core.
func (m *Memory) Cached(string) (namespaces.Namespace, bool) { return namespaces.Namespace{}, false }

// Get implements namespaces.Core.
func (m *Memory) Get(_ context.Context, name string) (namespaces.Namespace, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name != "ns" {
		return namespaces.Namespace{}, ledger.ErrNotFound
	}
	return m.Namespace, nil
}

// Finalize implements namespaces.Core.
func (m *Memory) Finalize(_ context.Context, _ string, _ namespaces.Namespace, finalizers []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Namespace.Finalizers = finalizers
	return nil
}

// Count implements quota.Inventory.
func (m *Memory) Count(context.Context, string, string, string, string) (int64, error) {
	return m.Objects, nil
}

// Holds implements namespaces.Inventory.
func (m *Memory) Holds(context.Context, string, string, map[string]string) (bool, error) {
	return m.Objects > 0, nil
}

// Empty implements namespaces.Inventory.
func (m *Memory) Empty(context.Context, string, string, map[string]string) (bool, error) {
	return true, nil
}

// Limit implements quota.Limits.
func (m *Memory) Limit(context.Context, string, string) (quota.Limit, error) {
	return quota.Limit{Hard: m.Hard, Quota: "q"}, nil
}

// Rooms returns what policies are made of, over the memory.
func (m *Memory) Rooms() (*ledger.Set, *namespaces.Keeper, *quota.Counter) {
	ledgers := ledger.NewSet(m, ledger.RandomPause, func(ledger.Key) {})
	keeper := &namespaces.Keeper{Core: m, Inventory: m, Ledgers: ledgers, Pause: ledger.RandomPause}
	return ledgers, keeper, quota.NewCounter(m, ledgers)
}
