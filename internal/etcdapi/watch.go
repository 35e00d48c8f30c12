package etcdapi

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/xbernetes/xbernetes/internal/etcdapi/wire"
	"github.com/xbernetes/xbernetes/internal/mvcc"
	"github.com/xbernetes/xbernetes/internal/replica"
)

// How much is read, matched and sent in one step.
const (
	pageBytes   = 1 << 20 // of events, over all watchers
	pageChanges = 10_000  // looked at for watchers that catch up
)

// etcd's reasons why a watch cannot be made.
const (
	reasonEmptyRange  = "mvcc: watcher range is empty"
	reasonDuplicateID = "mvcc: duplicate watch ID provided on the WatchStream"
)

// noWatch is the watch ID of a response that concerns no single watcher.
const noWatch = -1

// watchStream is one Watch call. One goroutine, its loop, sends all responses, so that none
// can overtake another. For a slow client only the response that the loop is sending is
// held: later events stay in the state's history until the loop reads them.
type watchStream struct {
	*service
	stream pb.Watch_WatchServer
	feed   *replica.Feed

	watchers map[int64]*watcher
	nextID   int64
	furthest mvcc.Revision         // the latest start that any watcher asked for
	follows  map[mvcc.KeyRange]int // how many watchers a range of the feed has

	// live watchers have all events up to seen. The watchers in behind get history, a
	// page at a time, until they have all events too.
	live, behind watchSet
	seen         mvcc.Revision

	asked   bool // for progress, once nobody is behind
	ticker  *time.Ticker
	touched []*watcher // scratch of deliver
}

// Watch implements etcdserverpb.WatchServer.
func (s *service) Watch(stream pb.Watch_WatchServer) error {
	ws := &watchStream{
		service:  s,
		stream:   stream,
		feed:     s.replica.NewFeed(),
		watchers: map[int64]*watcher{},
		follows:  map[mvcc.KeyRange]int{},
	}
	s.watches.streams.Add(1)
	defer ws.close()
	requests := make(chan *pb.WatchRequest)
	received := make(chan error, 1)
	// The receiver's goroutine ends with the stream, and the stream with this call.
	go func() { received <- receive(stream, requests) }()
	return ws.run(requests, received)
}

// receive passes a stream's requests on until the stream ends.
func receive[Q, A any](stream grpc.BidiStreamingServer[Q, A], requests chan<- *Q) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case requests <- r:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (ws *watchStream) close() {
	ws.watches.streams.Add(-1)
	ws.watches.watchers.Add(-int64(len(ws.watchers)))
	ws.watches.behind.Add(-int64(ws.behind.size))
	for r := range ws.follows {
		ws.feed.Remove(r)
	}
	if ws.ticker != nil {
		ws.ticker.Stop()
	}
}

// run answers requests, sends events, and lets watchers catch up, in turn, one step of each
// at a time.
func (ws *watchStream) run(requests <-chan *pb.WatchRequest, received <-chan error) error {
	always := make(chan struct{}) // a default case that takes its fair turn
	close(always)
	for {
		var catchUp <-chan struct{}
		if ws.behind.size > 0 {
			catchUp = always
		}
		var tick <-chan time.Time
		if ws.ticker != nil {
			tick = ws.ticker.C
		}
		var err error
		select {
		case r := <-requests:
			err = ws.request(r)
		case <-ws.feed.Wake():
			_, err = ws.advance()
		case <-catchUp:
			err = ws.catchUp()
		case <-tick:
			err = ws.tick()
		case err = <-received:
			received = nil // without an error: it asks no more, but still listens
		case <-ws.stream.Context().Done():
			err = rpctypes.ErrGRPCWatchCanceled
		case <-ws.stop:
			err = rpctypes.ErrGRPCStopped
		case <-ws.replica.Done():
			err = rpctypes.ErrGRPCStopped
		}
		if err == nil && ws.asked && ws.behind.size == 0 {
			err = ws.sendProgress()
		}
		if err != nil {
			return err
		}
	}
}

func (ws *watchStream) request(r *pb.WatchRequest) error {
	switch u := r.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		if u.CreateRequest != nil {
			return ws.create(u.CreateRequest)
		}
	case *pb.WatchRequest_CancelRequest:
		if u.CancelRequest != nil {
			return ws.cancel(u.CancelRequest.WatchId)
		}
	case *pb.WatchRequest_ProgressRequest:
		ws.asked = true
	}
	return nil
}

// advance sends the live watchers all events up to the newest state, and returns that state.
// The stream does not keep it, because an idle stream would then hold old history.
func (ws *watchStream) advance() (*mvcc.View, error) {
	view, first, last := ws.feed.Take()
	if first == 0 {
		ws.seen = view.Revision()
		return view, nil
	}
	if c := view.Compacted(); first < c {
		if err := ws.overtaken(c); err != nil {
			return view, err
		}
		first = c
	}
	changes, err := view.Changes(first, last)
	if err != nil {
		return view, rpcError(err)
	}
	for len(changes) > 0 {
		var n int
		if n, err = ws.deliver(&ws.live, changes, len(changes)); err != nil {
			return view, err
		}
		changes = changes[n:]
	}
	ws.seen = view.Revision()
	return view, nil
}

// overtaken cancels the live watchers whose next revision was compacted while the client was
// slow. Any of them may lack events.
func (ws *watchStream) overtaken(compacted mvcc.Revision) error {
	for _, w := range ws.live.all() {
		if max(w.next, ws.seen+1) < compacted {
			if err := ws.cancelCompacted(w, compacted); err != nil {
				return err
			}
		}
	}
	return nil
}

// catchUp sends the watchers in behind one page of history. A watcher that has all of it
// becomes live.
func (ws *watchStream) catchUp() error {
	view, err := ws.advance()
	if err != nil {
		return err
	}
	from := view.Revision() + 1
	for _, w := range ws.behind.all() {
		if w.next < view.Compacted() {
			if err := ws.cancelCompacted(w, view.Compacted()); err != nil {
				return err
			}
			continue
		}
		from = min(from, w.next)
	}
	upTo := view.Revision()
	if from <= upTo {
		changes, err := view.Changes(from, upTo)
		if err != nil {
			return rpcError(err)
		}
		if from == view.Compacted() {
			if first := withoutPrev(changes, from); len(first) > 0 {
				changes, upTo = first, from
			}
		}
		n, err := ws.deliver(&ws.behind, changes, pageChanges)
		if err != nil {
			return err
		}
		if n < len(changes) {
			upTo = changes[n].KV.Mod - 1
		}
	}
	for _, w := range ws.behind.all() {
		w.next = max(w.next, upTo+1)
		if w.next > view.Revision() {
			ws.behind.remove(w)
			ws.watches.behind.Add(-1)
			ws.live.add(w)
			w.behind = false
		}
	}
	return nil
}

// withoutPrev returns changes without the previous values of those at the compacted revision,
// which come first. In etcd compaction removes these values, and the API server concludes
// from the lack of one that its watch begins too late.
func withoutPrev(changes []mvcc.Change, compacted mvcc.Revision) []mvcc.Change {
	n := 0
	for n < len(changes) && changes[n].KV.Mod == compacted {
		n++
	}
	first := slices.Clone(changes[:n]) // they are the view's
	for i := range first {
		first[i].Prev = nil
	}
	return first
}

// deliver sends each watcher of set its part of changes, from the first on, in one response.
// It stops at the end of a revision once a page is full, after about limit changes at most,
// and returns how many changes it covered.
func (ws *watchStream) deliver(set *watchSet, changes []mvcc.Change, limit int) (n int, err error) {
	ws.touched = ws.touched[:0]
	size := 0
	for n < len(changes) && (size < pageBytes && n < limit || n > 0 && changes[n].KV.Mod == changes[n-1].KV.Mod) {
		c := &changes[n]
		set.find(c.KV.Key, func(w *watcher) {
			if !w.wants(c) {
				return
			}
			if len(w.batch) == 0 {
				ws.touched = append(ws.touched, w)
			}
			w.batch = append(w.batch, *c)
			size += wire.EventSize(c, w.prevKV)
		})
		n++
	}
	for _, w := range ws.touched {
		if err == nil {
			err = ws.sendEvents(w)
		}
		w.batch = w.batch[:0]
		if cap(w.batch) > 64 {
			w.batch = nil
		}
	}
	return n, err
}

// create makes a watcher, and answers its request. It follows the range before it reads the
// state, so that no change is missed between the two.
func (ws *watchStream) create(r *pb.WatchCreateRequest) error {
	w := newWatcher(r)
	reason := ""
	switch {
	case w.start < 0:
		reason = rpctypes.ErrCompacted.Error()
	case !w.r.Single() && w.r.End != mvcc.FromKey && w.r.End <= w.r.Key:
		reason = reasonEmptyRange
	case w.id != 0 && ws.watchers[w.id] != nil:
		reason = reasonDuplicateID
	}
	if reason != "" {
		rev := ws.replica.View().Revision()
		return ws.stream.Send(&pb.WatchResponse{Header: ws.header(rev), WatchId: noWatch, Created: true, Canceled: true, CancelReason: reason})
	}
	if w.id == 0 {
		for ws.watchers[ws.nextID] != nil {
			ws.nextID++
		}
		w.id = ws.nextID
		ws.nextID++
	}
	ws.follow(w.r)
	view, err := ws.advance()
	if err != nil {
		return err
	}
	rev := view.Revision()
	ws.watchers[w.id] = w
	ws.watches.watchers.Add(1)
	ws.furthest = max(ws.furthest, w.start)
	w.next = w.start
	switch {
	case w.start == 0:
		w.next = rev + 1
		ws.live.add(w)
	case w.start > rev:
		ws.live.add(w)
	default:
		ws.behind.add(w)
		ws.watches.behind.Add(1)
		w.behind = true
	}
	if w.progress && ws.ticker == nil {
		interval := ws.cfg.ProgressInterval
		ws.ticker = time.NewTicker(interval + rand.N(interval/10+1)) // apart from other streams
	}
	return ws.stream.Send(&pb.WatchResponse{Header: ws.header(rev), WatchId: w.id, Created: true})
}

func newWatcher(r *pb.WatchCreateRequest) *watcher {
	w := &watcher{
		id:       r.WatchId,
		r:        mvcc.KeyRange{Key: string(r.Key), End: string(r.RangeEnd)},
		start:    mvcc.Revision(r.StartRevision),
		prevKV:   r.PrevKv,
		fragment: r.Fragment,
		noPut:    slices.Contains(r.Filters, pb.WatchCreateRequest_NOPUT),
		noDelete: slices.Contains(r.Filters, pb.WatchCreateRequest_NODELETE),
		progress: r.ProgressNotify,
		quiet:    true,
	}
	if w.r.Key == "" {
		w.r.Key = "\x00" // the smallest key
	}
	return w
}

func (ws *watchStream) follow(r mvcc.KeyRange) {
	if ws.follows[r]++; ws.follows[r] == 1 {
		ws.feed.Add(r)
	}
}

// drop forgets a watcher.
func (ws *watchStream) drop(w *watcher) {
	delete(ws.watchers, w.id)
	ws.watches.watchers.Add(-1)
	if w.behind {
		ws.behind.remove(w)
		ws.watches.behind.Add(-1)
	} else {
		ws.live.remove(w)
	}
	if ws.follows[w.r]--; ws.follows[w.r] == 0 {
		delete(ws.follows, w.r)
		ws.feed.Remove(w.r)
	}
}

func (ws *watchStream) cancel(id int64) error {
	w := ws.watchers[id]
	if w == nil {
		return nil
	}
	view, err := ws.advance()
	if err != nil {
		return err
	}
	if ws.watchers[id] != w {
		return nil // compaction was faster
	}
	ws.drop(w)
	return ws.stream.Send(&pb.WatchResponse{Header: ws.header(view.Revision()), WatchId: id, Canceled: true})
}

func (ws *watchStream) cancelCompacted(w *watcher, compacted mvcc.Revision) error {
	ws.drop(w)
	return ws.stream.Send(&pb.WatchResponse{Header: ws.header(0), WatchId: w.id, Canceled: true, CompactRevision: int64(compacted)})
}

// sendProgress answers a request for progress: all events up to the revision have been sent.
// No watcher may be behind. If a watcher waits for a revision in the future, which could not
// resume from this one, there is no answer, as in etcd.
func (ws *watchStream) sendProgress() error {
	ws.asked = false
	view, err := ws.advance()
	if err != nil || len(ws.watchers) == 0 {
		return err
	}
	if ws.furthest > view.Revision() {
		for _, w := range ws.watchers {
			if w.start > view.Revision() {
				return nil
			}
		}
	}
	return ws.stream.Send(&pb.WatchResponse{Header: ws.header(view.Revision()), WatchId: noWatch})
}

// tick sends progress to each watcher that asked for it and was sent nothing since the last
// tick.
func (ws *watchStream) tick() error {
	view, err := ws.advance()
	if err != nil {
		return err
	}
	for _, w := range ws.live.all() {
		if w.progress && w.quiet && w.start <= view.Revision() {
			if err := ws.stream.Send(&pb.WatchResponse{Header: ws.header(view.Revision()), WatchId: w.id}); err != nil {
				return err
			}
		}
		w.quiet = true
	}
	return nil
}

// sendEvents sends a watcher a batch of events, which ends at the end of a revision. A watcher
// that asked for fragments gets a large batch in parts.
func (ws *watchStream) sendEvents(w *watcher) error {
	w.quiet = false
	rev := w.batch[len(w.batch)-1].KV.Mod
	for rest := w.batch; len(rest) > 0; {
		n := len(rest)
		if w.fragment {
			size := wire.EventSize(&rest[0], w.prevKV)
			for n = 1; n < len(rest); n++ {
				if size += wire.EventSize(&rest[n], w.prevKV); size >= maxRecvBytes {
					break
				}
			}
		}
		a := &wire.WatchResponse{Header: ws.head(rev), WatchID: w.id, Fragment: n < len(rest), Changes: rest[:n], PrevKV: w.prevKV}
		if err := ws.stream.SendMsg(a); err != nil {
			return err
		}
		ws.watches.events.Add(uint64(n))
		rest = rest[n:]
	}
	return nil
}
