package objectlog

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/objecttest"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3test"
)

// listing stands before a store and answers every LIST of one folder with n
// objects that it makes up. All other requests go to the store.
type listing struct {
	store    http.Handler
	clock    *s3test.Clock
	folder   string             // below the prefix of serve
	n        int                // how many objects there are
	name     func(i int) string // of object i, below the folder; ascending
	modified time.Time          // of every object
	lists    atomic.Int32       // how many LISTs of the folder there were
	deaf     bool               // start-after is ignored, as by a store that does not know it
	broken   atomic.Int32       // from so many LISTs on, every LIST is refused; 0: never
}

func (l *listing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	prefix := "some/where/" + l.folder
	if r.Method != http.MethodGet || !strings.HasPrefix(query.Get("prefix"), prefix) {
		l.store.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Date", l.clock.Now().UTC().Format(http.TimeFormat))
	if lists := l.lists.Add(1); l.broken.Load() > 0 && lists >= l.broken.Load() {
		objecttest.Answer(w, http.StatusForbidden, "AccessDenied")
		return
	}
	first := 0
	if after := query.Get("start-after"); after != "" && !l.deaf {
		first = sort.Search(l.n, func(i int) bool { return prefix+l.name(i) > after })
	}
	if token := query.Get("continuation-token"); token != "" {
		first, _ = strconv.Atoi(token)
	}
	type object struct {
		Key          string
		LastModified string
	}
	var page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []object
	}
	last := min(first+1000, l.n)
	for i := first; i < last; i++ {
		page.Contents = append(page.Contents, object{prefix + l.name(i), l.modified.UTC().Format(time.RFC3339)})
	}
	if page.IsTruncated = last < l.n; page.IsTruncated {
		page.NextContinuationToken = strconv.Itoa(last)
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(page) // a client that is gone
}

// listed opens a journal of ten records on a store that lists n floors, at the slots
// 1 to n, which were raised so long ago.
func listed(t *testing.T, n int, ago time.Duration) (*Log, *listing) {
	t.Helper()
	store, clock := clockedStore(t, 0)
	floors := &listing{store: store, clock: clock, folder: floorPrefix}
	l := mustOpen(t, serve(t, floors))
	grow(t, l, 1, 10)
	floors.n, floors.modified = n, clock.Now().Add(-ago)
	floors.name = func(i int) string { return fmt.Sprintf("%020d", i+1) }
	floors.lists.Store(0)
	return l, floors
}

// TestReadOfManyAndLong: a Read of many slots at once also returns a record that is longer
// than many records may be on the average.
func TestReadOfManyAndLong(t *testing.T) {
	l := mustOpen(t, serve(t, memoryStore(t)))
	const records, long = 700, 600
	for slot := journal.Slot(1); slot <= records; slot++ {
		rec := []byte(fmt.Sprint(slot))
		if slot == long {
			rec = bytes.Repeat(rec, journal.MaxRead/maxWindow/len(rec)+1)
		}
		if err := l.Append(t.Context(), slot, rec); err != nil {
			t.Fatal(err)
		}
	}
	recs, err := l.Read(t.Context(), 1, 2*records)
	if err != nil || len(recs) != records {
		t.Fatalf("Read = %d records, %v; want %d", len(recs), err, records)
	}
	for i, rec := range recs {
		if !bytes.HasPrefix(rec, []byte(fmt.Sprint(i+1))) || len(rec) > 10 != (i+1 == long) {
			t.Errorf("slot %d holds %d bytes, %.10q", i+1, len(rec), rec)
		}
	}
}
