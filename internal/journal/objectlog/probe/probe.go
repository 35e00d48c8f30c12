// Package probe tries whether a store keeps the promises that a journal in it
// rests on. It never reads or writes anything but objects of its own.
package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// Each of so many rounds has so many racers.
const (
	racers = 8
	rounds = 3
)

// Folder is where a probe keeps its objects, below the bucket's prefix.
const Folder = "probe/"

// maxObject is more than any object of a probe has, in bytes.
const maxObject = 1 << 20

// probe tries one bucket.
type probe struct {
	bucket *bucket.Bucket
	folder string // of this store's objects
}

// Run finds out whether the store keeps the promises that a journal rests on: of
// several writers that create one object at once exactly one wins, and it is the
// one whose bytes are stored; an object that exists is not overwritten; what was
// written is seen. Several S3 look-alikes break the first promise. The error about such a
// store wraps bucket.ErrUnfit.
//
// Run leaves nothing behind. Where deleting is denied, it leaves a mark for this
// endpoint; if Run finds the mark, it tries nothing.
func Run(ctx context.Context, b *bucket.Bucket, log *slog.Logger) error {
	store := sha256.Sum256([]byte(b.Names().Store))
	p := &probe{bucket: b, folder: Folder + hex.EncodeToString(store[:8]) + "/"}
	mark := p.folder + "passed"
	_, err := p.get(ctx, mark)
	if !errors.Is(err, bucket.ErrAbsent) {
		return err
	}
	denied, err := p.try(ctx)
	if err != nil || denied == nil {
		return err
	}
	log.Debug("leave a mark that the store was probed", "object", mark, "err", denied)
	if err := p.create(ctx, mark, "passed\n"); !errors.Is(err, bucket.ErrExists) {
		return err
	}
	return nil
}

// try runs all races, and deletes their objects. denied is why some could not
// be deleted; err is what is wrong with the store.
func (p *probe) try(ctx context.Context) (denied, err error) {
	var wrong, left [rounds]error
	var all sync.WaitGroup
	for i := range rounds {
		name := p.folder + rand.Text()
		r := p.runRace(ctx, name)
		all.Go(func() {
			wrong[i] = p.judge(ctx, name, r)
			left[i] = p.bucket.Again(ctx, func() error { return p.bucket.Remove(ctx, name) })
		})
	}
	all.Wait()
	return firstOf(left[:]), firstOf(wrong[:])
}

// get returns the object of that name.
func (p *probe) get(ctx context.Context, name string) (data []byte, err error) {
	err = p.bucket.Again(ctx, func() (err error) {
		data, _, err = p.bucket.Get(ctx, name, maxObject)
		return err
	})
	return data, err
}

// createAttempts is how often create sends its request at most, within some three
// seconds: Google's stores refuse more than one write a second to one object.
const createAttempts = 10

// create creates the object of that name.
func (p *probe) create(ctx context.Context, name, text string) error {
	for n := 1; ; n++ {
		_, err := p.bucket.Create(ctx, name, []byte(text))
		if err == nil || !bucket.Passing(err) || n == createAttempts || bucket.Between.Pause(ctx, n) != nil {
			return err
		}
	}
}

// race is what the writers of one key were told.
type race struct {
	bodies  [racers][]byte
	answers [racers]error // the last answer to each
	doubt   [racers]bool  // an earlier request of this writer may have landed
}

// runRace lets the writers create name at once.
func (p *probe) runRace(ctx context.Context, name string) *race {
	r := new(race)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range racers {
		r.bodies[i] = fmt.Appendf(nil, "writer %d of %s\n", i, rand.Text())
		all.Go(func() {
			<-start
			for n := range bucket.Attempts {
				_, err := p.bucket.Create(ctx, name, r.bodies[i])
				r.answers[i] = err
				if err == nil || !bucket.Passing(err) || bucket.Between.Pause(ctx, n+1) != nil {
					return
				}
				r.doubt[i] = r.doubt[i] || !errors.Is(err, bucket.ErrConflict)
			}
		})
	}
	close(start)
	all.Wait()
	return r
}

// judge compares what the writers of name were told with what is stored.
func (p *probe) judge(ctx context.Context, name string, r *race) error {
	var won, open []int // told that they won; not told
	for i, err := range r.answers {
		switch {
		case err == nil:
			won = append(won, i)
		case bucket.Passing(err), errors.Is(err, bucket.ErrExists) && r.doubt[i]:
			open = append(open, i)
		case errors.Is(err, bucket.ErrExists):
		case errors.Is(err, bucket.ErrNotImplemented):
			return p.broken("it does not know " + p.bucket.Names().Create)
		default:
			return err
		}
	}
	if len(won) > 1 {
		return p.broken(fmt.Sprintf("of %d writers that created one key at once, %d were told that they won, and only one may", racers, len(won)))
	}
	stored, err := p.get(ctx, name)
	if errors.Is(err, bucket.ErrAbsent) && len(won) == 1 {
		return p.broken("an object that was just written is not there")
	}
	if errors.Is(err, bucket.ErrAbsent) && len(open) > 0 {
		return r.answers[open[0]]
	}
	if err != nil {
		return err
	}
	if len(won) == 0 {
		won = open // one of them may have won without being told
	}
	for _, i := range won {
		if bytes.Equal(stored, r.bodies[i]) {
			return p.judgeOverwrite(ctx, name, stored)
		}
	}
	return p.broken(fmt.Sprintf("of %d writers that created one key at once, the one that was told that it won is not the one whose bytes are stored", racers))
}

// judgeOverwrite checks that a key that exists is not created again.
func (p *probe) judgeOverwrite(ctx context.Context, name string, stored []byte) error {
	err := p.create(ctx, name, "overwritten\n")
	switch {
	case err == nil:
		return p.broken("it overwrote an object at a " + p.bucket.Names().Create)
	case !errors.Is(err, bucket.ErrExists):
		return err
	}
	now, err := p.get(ctx, name)
	if err == nil && !bytes.Equal(now, stored) {
		return p.broken("it refused to overwrite an object, and overwrote it all the same")
	}
	return err
}

// broken is the error about a store that breaks a promise.
func (p *probe) broken(how string) error {
	names := p.bucket.Names()
	return bucket.Explained(bucket.ErrUnfit, fmt.Sprintf("the store at %s broke a promise that a journal needs: %s; use a store whose %s is atomic", names.Store, how, names.Create))
}

// firstOf returns the first error that is not nil.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
