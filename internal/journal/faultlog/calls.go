package faultlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Info implements journal.Journal.
func (s *Store) Info() journal.Info { return s.inner.Info() }

// Append implements journal.Journal, but for what Config.FalseTaken says.
func (s *Store) Append(ctx context.Context, slot journal.Slot, rec []byte) error {
	c := call{op: "append", slot: slot}
	dice, err := s.begin(ctx, c)
	if err != nil {
		return fmt.Errorf("append slot %d: %w", slot, err)
	}
	fate := dice.Float64()
	for _, f := range []struct {
		share float64
		meet  func() error
	}{
		{s.fates.cfg.Fail, func() error {
			s.fates.strike("fail", c, func(n *Counts) { n.Fail++ })
			return fmt.Errorf("append slot %d: %w", slot, ErrInjected)
		}},
		{s.fates.cfg.FailApplied, func() error {
			s.fates.strike("fail applied", c, func(n *Counts) { n.FailApplied++ })
			_ = s.inner.Append(ctx, slot, rec) // the answer is what gets lost
			return fmt.Errorf("append slot %d: %w", slot, ErrInjected)
		}},
		{s.fates.cfg.Late, func() error {
			s.fates.strike("late", c, func(n *Counts) { n.Late++ })
			return fmt.Errorf("append slot %d: %w", slot, s.appendLate(ctx, dice, slot, rec))
		}},
		{s.fates.cfg.FalseTaken, func() error {
			if err := s.inner.Append(ctx, slot, rec); err != nil {
				return err
			}
			s.fates.strike("false taken", c, func(n *Counts) { n.FalseTaken++ })
			return fmt.Errorf("append slot %d: %w", slot, journal.ErrTaken)
		}},
	} {
		if fate < f.share {
			return f.meet()
		}
		fate -= f.share
	}
	return s.inner.Append(ctx, slot, rec)
}

// appendLate attempts rec later, and returns what the caller is told now.
func (s *Store) appendLate(ctx context.Context, dice *rand.Rand, slot journal.Slot, rec []byte) error {
	rec = bytes.Clone(rec)
	wait := time.Duration(dice.Int64N(int64(s.fates.cfg.MaxLate) + 1))
	_, deadline := ctx.Deadline()
	timeout := deadline && dice.IntN(2) == 0
	if !s.late.add(func() bool { return s.live.Err() != nil }) {
		return journal.ErrClosed
	}
	go func() {
		defer s.late.done()
		if timeout {
			<-ctx.Done() // it lands after its caller has given up
		}
		if sleep(s.live, wait) != nil || s.fates.out() {
			return
		}
		if s.inner.Append(s.live, slot, rec) == nil {
			s.fates.strike("landed late", call{op: "append", slot: slot}, func(n *Counts) { n.Landed++ })
		}
	}()
	if timeout {
		<-ctx.Done()
		return ctx.Err()
	}
	return ErrInjected
}

// Read implements journal.Journal.
func (s *Store) Read(ctx context.Context, from journal.Slot, limit int) ([][]byte, error) {
	if err := s.read(ctx, call{op: "read", slot: from}); err != nil {
		return nil, fmt.Errorf("read slot %d: %w", from, err)
	}
	return s.inner.Read(ctx, from, limit)
}

// Peek implements journal.Journal.
func (s *Store) Peek(ctx context.Context, slot journal.Slot) ([]byte, error) {
	if err := s.read(ctx, call{op: "peek", slot: slot}); err != nil {
		return nil, fmt.Errorf("peek at slot %d: %w", slot, err)
	}
	return s.inner.Peek(ctx, slot)
}

// GetBlob implements journal.Blobs.
func (s *Store) GetBlob(ctx context.Context, name string) ([]byte, error) {
	if err := s.read(ctx, call{op: "get blob", name: name}); err != nil {
		return nil, fmt.Errorf("get blob %s: %w", name, err)
	}
	return s.inner.GetBlob(ctx, name)
}

// ListBlobs implements journal.Blobs.
func (s *Store) ListBlobs(ctx context.Context, prefix string) ([]string, error) {
	if err := s.read(ctx, call{op: "list blobs", name: prefix}); err != nil {
		return nil, fmt.Errorf("list blobs %s: %w", prefix, err)
	}
	return s.inner.ListBlobs(ctx, prefix)
}

// PutBlob implements journal.Blobs.
func (s *Store) PutBlob(ctx context.Context, name string, data []byte) error {
	return s.write(ctx, call{op: "put blob", name: name}, func() error { return s.inner.PutBlob(ctx, name, data) })
}

// DeleteBlob implements journal.Blobs.
func (s *Store) DeleteBlob(ctx context.Context, name string) error {
	return s.write(ctx, call{op: "delete blob", name: name}, func() error { return s.inner.DeleteBlob(ctx, name) })
}

// Trim implements journal.Trimmer.
func (s *Store) Trim(ctx context.Context, before journal.Slot) (deleted int, err error) {
	err = s.write(ctx, call{op: "trim", slot: before}, func() (err error) {
		deleted, err = s.inner.Trim(ctx, before)
		return err
	})
	return deleted, err
}

// Close implements journal.Journal: records still on their way are lost.
func (s *Store) Close() error {
	s.late.mu.Lock()
	s.stop()
	s.late.mu.Unlock()
	_ = s.late.wait(context.Background()) // s.stop has ended their waits
	return s.inner.Close()
}

// read decides the fate of a call that changes nothing.
func (s *Store) read(ctx context.Context, c call) error {
	dice, err := s.begin(ctx, c)
	if err != nil {
		return err
	}
	if dice.Float64() < s.fates.cfg.ReadFail {
		s.fates.strike("read fail", c, func(n *Counts) { n.ReadFail++ })
		return ErrInjected
	}
	return nil
}

// write decides the fate of a call that changes something other than a slot.
func (s *Store) write(ctx context.Context, c call, do func() error) error {
	dice, err := s.begin(ctx, c)
	if err == nil && dice.Float64() < s.fates.cfg.WriteFail {
		s.fates.strike("write fail", c, func(n *Counts) { n.WriteFail++ })
		if dice.IntN(2) == 0 {
			err = errors.Join(ErrInjected, do())
		} else {
			err = ErrInjected
		}
	}
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	return do()
}
