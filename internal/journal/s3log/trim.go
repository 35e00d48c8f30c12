package s3log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// deletesAtOnce is how many slots Trim deletes at once.
const deletesAtOnce = 16

// Trim implements journal.Trimmer. It raises the floor, from which moment the
// slots below are gone for every reader that asks, and then deletes them,
// oldest first, but for those that are younger than settleTime: the next Trim
// deletes those.
func (l *Log) Trim(ctx context.Context, before journal.Slot) error {
	if l.cfg.ReadOnly {
		return errReadOnly
	}
	ctx, done, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if before <= 1 {
		return nil
	}
	if err := l.writeFloor(ctx, before); err != nil {
		return fmt.Errorf("trim below slot %d: raise the floor: %w", before, err)
	}
	if err := l.deleteBelow(ctx, before); err != nil {
		return fmt.Errorf("trim below slot %d: %w", before, err)
	}
	return nil
}

// deleteBelow deletes the slots below before that are old enough. A slot is
// as old as all slots before it, or nearly, so the first that is too young
// ends it.
func (l *Log) deleteBelow(ctx context.Context, before journal.Slot) error {
	var token *string
	for {
		var page *s3.ListObjectsV2Output
		err := l.again(ctx, func() (err error) {
			page, err = l.list(ctx, slotPrefix, token, 1000)
			return err
		})
		if err != nil {
			return fmt.Errorf("list slots: %w", err)
		}
		names, more := l.deletable(page, before)
		for len(names) > 0 {
			n := min(len(names), deletesAtOnce)
			errs := make([]error, n)
			each(n, func(i int) {
				errs[i] = l.again(ctx, func() error { return l.remove(ctx, names[i]) })
			})
			if err := firstOf(errs); err != nil {
				return fmt.Errorf("delete slots: %w", l.explainDelete(err))
			}
			names = names[n:]
		}
		if !more || !aws.ToBool(page.IsTruncated) {
			return nil
		}
		token = page.NextContinuationToken
	}
}

// deletable returns the names of the slots on a page that may be deleted, and
// whether the next page may have more.
func (l *Log) deletable(page *s3.ListObjectsV2Output, before journal.Slot) (names []string, more bool) {
	now, ok := awsmiddleware.GetServerTime(page.ResultMetadata)
	if !ok {
		now = time.Now()
	}
	for _, object := range page.Contents {
		name := strings.TrimPrefix(aws.ToString(object.Key), l.cfg.key(""))
		slot, err := parseSlot(name)
		if err != nil {
			continue // not ours
		}
		if slot >= before || now.Sub(aws.ToTime(object.LastModified)) < l.settle {
			return names, false
		}
		names = append(names, name)
	}
	return names, true
}

func (l *Log) explainDelete(err error) error {
	if statusOf(err) == http.StatusForbidden {
		return &refusal{cause: err, sentence: fmt.Sprintf("these credentials may not delete from %s/%s; only the journal's owner trims it, and needs s3:DeleteObject", l.cfg.location(), slotPrefix)}
	}
	return err
}

func parseSlot(name string) (journal.Slot, error) {
	digits, ok := strings.CutPrefix(name, slotPrefix)
	if !ok || len(digits) != 20 {
		return 0, fmt.Errorf("object %s is no slot", name)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return journal.Slot(n), err
}

// floor is the content of floor.json.
type floor struct {
	Format  int    `json:"format"`
	Journal string `json:"journal"`
	// Floor is the first slot that is not trimmed.
	Floor journal.Slot `json:"floor"`
}

// readFloor reads the floor, 1 if none was ever written.
func (l *Log) readFloor(ctx context.Context) (journal.Slot, error) {
	slot, _, err := l.readFloorObject(ctx)
	return slot, err
}

func (l *Log) readFloorObject(ctx context.Context) (slot journal.Slot, etag string, err error) {
	var data []byte
	err = l.again(ctx, func() (err error) {
		data, etag, err = l.get(ctx, floorName, 1<<20)
		return err
	})
	if errors.Is(err, errAbsent) {
		return l.ends.raiseFloor(1), "", nil
	}
	if err != nil {
		return 0, "", fmt.Errorf("read %s: %w", floorName, err)
	}
	slot, err = decodeFloor(data, l.info.ID)
	if err != nil {
		return 0, "", err
	}
	return l.ends.raiseFloor(slot), etag, nil
}

func decodeFloor(data []byte, id journal.ID) (journal.Slot, error) {
	var f floor
	err := json.Unmarshal(data, &f)
	if err == nil && f.Format > journal.FormatVersion {
		return 0, fmt.Errorf("%s: %w", floorName, journal.ErrNewerFormat)
	}
	if err != nil || f.Format < 1 || f.Journal != id.String() || f.Floor < 1 {
		return 0, fmt.Errorf("%s is not the floor of this journal: %w", floorName, journal.ErrCorrupt)
	}
	return f.Floor, nil
}

// writeFloor raises the floor to at least slot; it never lowers it, also when
// several processes write.
func (l *Log) writeFloor(ctx context.Context, slot journal.Slot) error {
	data, err := json.Marshal(floor{Format: journal.FormatVersion, Journal: l.info.ID.String(), Floor: slot})
	if err != nil {
		return fmt.Errorf("encode %s: %w", floorName, err)
	}
	for n := 0; ; n++ {
		now, etag, err := l.readFloorObject(ctx)
		if err != nil || now >= slot {
			return err
		}
		cond := ifAbsent
		if etag != "" {
			cond = condition{ifMatch: &etag}
		}
		err = l.put(ctx, floorName, data, cond)
		if err == nil {
			l.ends.raiseFloor(slot)
			return nil
		}
		lost := statusOf(err) == http.StatusPreconditionFailed
		if !lost && !passing(err) || n == 10*attempts || pause(ctx, n) != nil {
			return err
		}
	}
}
