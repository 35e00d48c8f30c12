package etcdapi

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xbernetes/xbernetes/internal/mvcc"
)

func TestWatchSetFindsWhoWatches(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	key := func() string { return fmt.Sprintf("%03d", r.IntN(200))[:1+r.IntN(3)] }
	var set watchSet
	var all []*watcher
	for i := range 3000 {
		switch {
		case len(all) > 0 && r.IntN(3) == 0:
			n := r.IntN(len(all))
			set.remove(all[n])
			all = slices.Delete(all, n, n+1)
		default:
			w := &watcher{id: int64(i), r: mvcc.KeyRange{Key: key()}}
			switch r.IntN(4) {
			case 0:
				w.r.End = mvcc.FromKey
			case 1, 2:
				w.r.End = key() // at times before the start: watches nothing
			}
			set.add(w)
			all = append(all, w)
		}
		k := key()
		var want, got []int64
		for _, w := range all {
			if w.r.Contains(k) {
				want = append(want, w.id)
			}
		}
		set.find(k, func(w *watcher) { got = append(got, w.id) })
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("step %d: watchers of %q, want (-) and got (+):\n%s", i, k, diff)
		}
		if set.size != len(all) || len(set.all()) != len(all) {
			t.Fatalf("step %d: size %d, all %d, want %d", i, set.size, len(set.all()), len(all))
		}
	}
}
