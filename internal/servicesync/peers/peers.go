// Package peers finds the clusters to import from, in a folder of kubeconfigs, in flags,
// or in Secrets of the cluster itself. It never connects to a peer, and a peer that cannot
// be used hides no other.
package peers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/kubeconfig"
)

// Peer is a cluster that a source names, and how to reach its API.
type Peer struct {
	// Name is the peer's name here: the name of the file, the flag or the Secret.
	Name string
	// Origin is where the peer was found, for people.
	Origin string
	// Config reaches the peer's API; nil if the peer cannot be used.
	Config *rest.Config
	// Namespace is where the peer publishes; "" for the default namespace.
	Namespace string
	// Fingerprint differs whenever Config does.
	Fingerprint string
	// Err says what is wrong with the peer. If Config is set too, it is an older
	// Config, which remains in use.
	Err error
	// Unread says that Err is about the source itself, which was not read yet: the
	// source may name more peers.
	Unread bool
}

// Source finds peers.
type Source interface {
	// Run calls found with all peers that the source names, at the start and after
	// every change, from one goroutine, until ctx ends. If the source cannot be read,
	// Run reports a Peer with an Err, and tries again.
	Run(ctx context.Context, found func([]Peer)) error
}

// Join runs several sources as one. If two of them name the same peer, the first counts.
func Join(sources ...Source) Source { return joined(sources) }

type joined []Source

func (j joined) Run(ctx context.Context, found func([]Peer)) error {
	var mu sync.Mutex
	all := make([][]Peer, len(j))
	told := make([]bool, len(j))
	g, ctx := errgroup.WithContext(ctx)
	for i, source := range j {
		g.Go(func() error {
			return source.Run(ctx, func(peers []Peer) {
				mu.Lock()
				defer mu.Unlock()
				all[i], told[i] = peers, true
				// If a source were left out, its peers would look as if they were gone.
				if !slices.Contains(told, false) {
					found(first(all))
				}
			})
		})
	}
	if len(j) == 0 {
		found(nil)
		<-ctx.Done()
	}
	return g.Wait()
}

// first keeps the first peer of each name, and replaces the others by faults.
func first(all [][]Peer) []Peer {
	var peers []Peer
	seen := make(map[string]string)
	for _, p := range slices.Concat(all...) {
		if other, ok := seen[p.Name]; ok {
			p = Peer{Name: p.Name, Origin: p.Origin, Err: fmt.Errorf("%s names a second peer %s, beside %s; rename one", p.Origin, p.Name, other)}
		} else {
			seen[p.Name] = p.Origin
		}
		peers = append(peers, p)
	}
	return peers
}

// parse makes a peer of a kubeconfig, with the named context, or the current one if
// context is "".
func parse(name, origin string, data []byte, context string, t kubeconfig.Trust) Peer {
	p := Peer{Name: name, Origin: origin, Fingerprint: fmt.Sprintf("%x", sha256.Sum256(append(data, context...)))}
	p.Config, p.Namespace, p.Err = kubeconfig.Read(data, context, t)
	if p.Err != nil {
		p.Err = fmt.Errorf("%s: %w", origin, p.Err)
	}
	return p
}

// Fixed returns a source whose peers never change.
func Fixed(all ...Peer) Source { return fixed(all) }

type fixed []Peer

func (f fixed) Run(ctx context.Context, found func([]Peer)) error {
	found(f)
	<-ctx.Done()
	return nil
}
