package s3log

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"sync"
)

const (
	probeRacers = 8
	probeRounds = 3
)

// probe finds out whether the store keeps the promises that a journal rests
// on: of several writers that create one key at once exactly one wins, and it
// is the one whose bytes are stored; a key that exists is not overwritten;
// what was written is seen. Several S3 look-alikes break the first.
//
// It leaves nothing behind. Where deleting is denied, it leaves a mark for
// this endpoint, and the next process that finds the mark does not probe.
func (l *Log) probe(ctx context.Context) error {
	place := sha256.Sum256([]byte(l.cfg.place()))
	folder := probePrefix + hex.EncodeToString(place[:8]) + "/"
	mark := folder + "passed"
	err := l.again(ctx, func() error {
		_, _, err := l.get(ctx, mark, 1<<20)
		return err
	})
	if !errors.Is(err, errAbsent) {
		return err
	}
	names := make([]string, probeRounds)
	races := make([]*race, probeRounds)
	for i := range names {
		names[i] = folder + rand.Text()
		races[i] = l.runRace(ctx, names[i])
	}
	errs := make([]error, probeRounds)
	each(probeRounds, func(i int) { errs[i] = l.judge(ctx, names[i], races[i]) })
	denied := make([]error, probeRounds)
	each(probeRounds, func(i int) {
		denied[i] = l.again(ctx, func() error { return l.remove(ctx, names[i]) })
	})
	if err := errors.Join(errs...); err != nil {
		return firstOf(errs)
	}
	if firstOf(denied) == nil {
		return nil
	}
	l.cfg.logger().Debug("leave a mark that the store was probed", "object", mark, "err", firstOf(denied))
	err = l.again(ctx, func() error {
		_, err := l.put(ctx, mark, []byte("passed\n"), ifAbsent)
		return err
	})
	if statusOf(err) == http.StatusPreconditionFailed {
		return nil
	}
	return err
}

// race is what the writers of one key were told.
type race struct {
	bodies  [probeRacers][]byte
	answers [probeRacers]error // the last answer to each
	doubt   [probeRacers]bool  // an earlier request of this writer may have landed
}

// runRace lets the writers create name at once.
func (l *Log) runRace(ctx context.Context, name string) *race {
	r := new(race)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range probeRacers {
		r.bodies[i] = fmt.Appendf(nil, "writer %d of %s\n", i, rand.Text())
		all.Go(func() {
			<-start
			for n := range attempts {
				_, err := l.put(ctx, name, r.bodies[i], ifAbsent)
				r.answers[i] = err
				if err == nil || !passing(err) || pause(ctx, n) != nil {
					return
				}
				r.doubt[i] = r.doubt[i] || statusOf(err) != http.StatusConflict
			}
		})
	}
	close(start)
	all.Wait()
	return r
}

// judge compares what the writers of name were told with what is stored.
func (l *Log) judge(ctx context.Context, name string, r *race) error {
	var won, open []int // told that they won; not told
	for i, err := range r.answers {
		switch {
		case err == nil:
			won = append(won, i)
		case passing(err), statusOf(err) == http.StatusPreconditionFailed && r.doubt[i]:
			open = append(open, i)
		case statusOf(err) == http.StatusPreconditionFailed:
		case statusOf(err) == http.StatusNotImplemented:
			return l.broken("it does not know PUT with If-None-Match: *")
		default:
			return err
		}
	}
	if len(won) > 1 {
		return l.broken(fmt.Sprintf("of %d writers that created one key at once, %d were told that they won, and only one may", probeRacers, len(won)))
	}
	var stored []byte
	err := l.again(ctx, func() (err error) {
		stored, _, err = l.get(ctx, name, 1<<20)
		return err
	})
	if errors.Is(err, errAbsent) && len(won) == 1 {
		return l.broken("an object that was just written is not there")
	}
	if errors.Is(err, errAbsent) && len(open) > 0 {
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
			return l.judgeOverwrite(ctx, name, stored)
		}
	}
	return l.broken(fmt.Sprintf("of %d writers that created one key at once, the one that was told that it won is not the one whose bytes are stored", probeRacers))
}

// judgeOverwrite checks that a key that exists is not created again.
func (l *Log) judgeOverwrite(ctx context.Context, name string, stored []byte) error {
	err := l.again(ctx, func() error {
		_, err := l.put(ctx, name, []byte("overwritten\n"), ifAbsent)
		return err
	})
	switch {
	case err == nil:
		return l.broken("it overwrote an object although the request said If-None-Match: *")
	case statusOf(err) != http.StatusPreconditionFailed:
		return err
	}
	var now []byte
	err = l.again(ctx, func() (err error) {
		now, _, err = l.get(ctx, name, 1<<20)
		return err
	})
	if err == nil && !bytes.Equal(now, stored) {
		return l.broken("it refused to overwrite an object, and overwrote it all the same")
	}
	return err
}

// errBroken: the store is not fit for a journal.
var errBroken = errors.New("store breaks a promise")

func (l *Log) broken(how string) error {
	return &refusal{cause: errBroken, sentence: fmt.Sprintf("the store at %s broke a promise that a journal needs: %s; use a store whose PUT with If-None-Match: * is atomic, as that of S3 is", l.cfg.place(), how)}
}

// undated is the refusal of a store that does not say what time it is.
func (l *Log) undated() error {
	return &refusal{cause: errBroken, sentence: fmt.Sprintf("the answers of the store at %s carry no Date, by which a journal tells how old they are; use a store that sends one, as S3 does, and no proxy that removes it", l.cfg.place())}
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
