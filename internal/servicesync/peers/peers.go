// Package peers finds the clusters to import from: in a folder of kubeconfigs,
// in flags, or in Secrets of the cluster itself. It never connects to any of
// them, and one that cannot be used hides no other.
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

// Peer is a cluster that something names, and how to reach its API.
type Peer struct {
	// Name is what this side calls it: the file's name, the flag's, the Secret's.
	Name string
	// Origin is where it was found, for people.
	Origin string
	// Config reaches it; nil where it cannot be used.
	Config *rest.Config
	// Namespace is where it publishes; "" is where everybody does.
	Namespace string
	// Fingerprint differs whenever Config does.
	Fingerprint string
	// Err says what is wrong with it. Beside a Config: the Config is an older
	// one, and goes on being used.
	Err error
	// Unread says that Err is about the source itself, which was not read yet:
	// it may name more peers.
	Unread bool
}

// Source finds peers.
type Source interface {
	// Run calls found with all the peers that the source knows, at the start and
	// after every change, from one goroutine, until ctx ends. A source that
	// cannot be read says so as a Peer with an Err, and tries again.
	Run(ctx context.Context, found func([]Peer)) error
}

// Join runs the sources as one. Of peers of one name the first source's counts.
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
				// Less than everything would look like peers that are gone.
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

// first keeps, of the peers of one name, the first.
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

// parse makes a peer of a kubeconfig's bytes; of context, if that is not "".
func parse(name, origin string, data []byte, context string, t kubeconfig.Trust) Peer {
	p := Peer{Name: name, Origin: origin, Fingerprint: fmt.Sprintf("%x", sha256.Sum256(append(data, context...)))}
	p.Config, p.Namespace, p.Err = kubeconfig.Read(data, context, t)
	if p.Err != nil {
		p.Err = fmt.Errorf("%s: %w", origin, p.Err)
	}
	return p
}

// Fixed is a source of the same peers for ever.
func Fixed(all ...Peer) Source { return fixed(all) }

type fixed []Peer

func (f fixed) Run(ctx context.Context, found func([]Peer)) error {
	found(f)
	<-ctx.Done()
	return nil
}
