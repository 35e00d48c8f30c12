package s3log

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/xbernetes/xbernetes/internal/journal"
)

const (
	// deletesAtOnce is how many objects Trim deletes at once.
	deletesAtOnce = 16
	// floorsATrim is how many old floors one Trim deletes at most. It is more than
	// an owner raises; if somebody else made more, later Trims delete the rest.
	floorsATrim = 1000
)

// Trim implements journal.Trimmer. It raises the floor, and deletes the slots
// below the floors that were raised settle ago or earlier, oldest first: what
// this call's floor gives up beyond them, a later call deletes.
func (l *Log) Trim(ctx context.Context, before journal.Slot) (deleted int, err error) {
	if l.cfg.ReadOnly {
		return 0, errReadOnly
	}
	ctx, done, err := l.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if before <= 1 {
		return 0, nil
	}
	if err := l.raiseFloor(ctx, before); err != nil {
		return 0, fmt.Errorf("trim below slot %d: raise the floor: %w", before, err)
	}
	if _, err := l.lookAtFloors(ctx); err != nil {
		return 0, fmt.Errorf("trim below slot %d: look at the floors: %w", before, err)
	}
	ripe := l.ends.ripeFloor()
	deleted, err = l.deleteBelow(ctx, slotPrefix, min(before, ripe), math.MaxInt)
	if err != nil {
		return deleted, fmt.Errorf("trim below slot %d: delete slots: %w", before, err)
	}
	if _, err := l.deleteBelow(ctx, floorPrefix, ripe, floorsATrim); err != nil {
		return deleted, fmt.Errorf("trim below slot %d: delete old floors: %w", before, err)
	}
	return deleted, nil
}

// deleteBelow deletes the objects that are named after slots below before, at most
// so many, and returns how many it deleted.
func (l *Log) deleteBelow(ctx context.Context, prefix string, before journal.Slot, most int) (deleted int, err error) {
	err = l.eachNumbered(ctx, prefix, 1, func(page []numbered, _ time.Time) (more bool, err error) {
		n := 0
		for n < len(page) && page[n].slot < before && deleted+n < most {
			n++
		}
		for names := page[:n]; len(names) > 0; {
			now := min(len(names), deletesAtOnce)
			errs := make([]error, now)
			each(now, func(i int) {
				errs[i] = l.again(ctx, func() error { return l.remove(ctx, names[i].name) })
			})
			for _, err := range errs {
				if err == nil {
					deleted++
				}
			}
			if err := firstOf(errs); err != nil {
				return false, l.explainDelete(err)
			}
			names = names[now:]
		}
		return n == len(page), nil
	})
	return deleted, err
}

// numbered is an object whose name ends in the 20 digits of a slot.
type numbered struct {
	name     string
	slot     journal.Slot
	modified time.Time // by the store's clock
}

// eachNumbered lists the objects below prefix that are named after slots from from
// on, in their order, a page at a time, with the store's time of each page. A store
// that does not know where to begin a listing shows those of lower slots too.
func (l *Log) eachNumbered(ctx context.Context, prefix string, from journal.Slot, do func(page []numbered, at time.Time) (more bool, err error)) error {
	start := ""
	if from > 1 {
		start = fmt.Sprintf("%s%020d", prefix, uint64(from-1))
	}
	var token *string
	for {
		var page *s3.ListObjectsV2Output
		err := l.again(ctx, func() (err error) {
			page, err = l.list(ctx, prefix, start, token, 1000)
			return err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		at := dateOf(page.ResultMetadata)
		if at.IsZero() {
			return l.undated()
		}
		var objects []numbered
		for _, object := range page.Contents {
			name := strings.TrimPrefix(aws.ToString(object.Key), l.cfg.key(""))
			if slot, ok := slotOf(strings.TrimPrefix(name, prefix)); ok { // else not ours
				objects = append(objects, numbered{name, slot, aws.ToTime(object.LastModified)})
			}
		}
		more, err := do(objects, at)
		if err != nil || !more || !aws.ToBool(page.IsTruncated) {
			return err
		}
		start, token = "", page.NextContinuationToken
	}
}

// slotOf is the slot that 20 digits name.
func slotOf(digits string) (journal.Slot, bool) {
	n, err := strconv.ParseUint(digits, 10, 64)
	return journal.Slot(n), err == nil && len(digits) == 20 && digits[0] != '+'
}

func (l *Log) explainDelete(err error) error {
	if statusOf(err) == http.StatusForbidden {
		return &refusal{cause: err, sentence: fmt.Sprintf("these credentials may not delete from %s/%s; only the journal's owner trims it, and needs s3:DeleteObject", l.cfg.location(), slotPrefix)}
	}
	return err
}
