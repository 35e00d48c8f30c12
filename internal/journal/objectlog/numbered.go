package objectlog

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// numbered is an object whose name ends in the 20 digits of a slot.
type numbered struct {
	name     string
	slot     journal.Slot
	modified time.Time // by the store's clock
}

// eachNumbered lists the objects below prefix that are named after slots, in their
// order, from slot from on, and calls do with each page and the store's time of it
// until do returns more = false. If a store does not know where to begin a
// listing, do is given objects of lower slots too.
func eachNumbered(ctx context.Context, b *bucket.Bucket, prefix string, from journal.Slot, do func(page []numbered, at time.Time) (more bool, err error)) error {
	start, next := "", ""
	if from > 1 {
		start = numberedName(prefix, from-1)
	}
	for {
		var page bucket.Page
		err := b.Again(ctx, func() (err error) {
			page, err = b.List(ctx, prefix, start, next)
			return err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		if page.At.IsZero() {
			return b.Undated()
		}
		var objects []numbered
		for _, o := range page.Objects {
			if slot, ok := slotOf(strings.TrimPrefix(o.Name, prefix)); ok { // else not ours
				objects = append(objects, numbered{o.Name, slot, o.Modified})
			}
		}
		more, err := do(objects, page.At)
		if err != nil || !more || page.Next == "" {
			return err
		}
		next = page.Next
	}
}

// slotOf is the slot that 20 digits name.
func slotOf(digits string) (journal.Slot, bool) {
	n, err := strconv.ParseUint(digits, 10, 64)
	return journal.Slot(n), err == nil && len(digits) == 20 && digits[0] != '+'
}
