package direct

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc/mem"
)

// A lane has room for about window bytes; each message counts as perMessage bytes
// more than it has. A message enters if there is any room, however long it is.
const (
	window     = 1 << 20
	perMessage = 64
)

// lane carries messages one way, in order, from one sender to one receiver. The sender waits
// while there is no room, as with grpc's flow control.
type lane struct {
	mu sync.Mutex // guards what follows, up to the channels

	queue  []mem.BufferSlice
	size   int  // Invariant: what the messages in queue count
	closed bool // the last message is in queue, or was received

	// Each channel holds a token if something has changed since the last token was taken.
	filled  chan struct{} // queue has a message, or the lane was closed
	emptied chan struct{} // there is room
}

func newLane() *lane {
	return &lane{filled: make(chan struct{}, 1), emptied: make(chan struct{}, 1)}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// send queues a message once there is room. It returns io.EOF if the lane was closed,
// and ctx's error if ctx ended.
func (l *lane) send(ctx context.Context, b mem.BufferSlice) error {
	for ctx.Err() == nil {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return io.EOF
		}
		if l.size < window {
			l.queue = append(l.queue, b)
			l.size += b.Len() + perMessage
			l.mu.Unlock()
			notify(l.filled)
			return nil
		}
		l.mu.Unlock()
		select {
		case <-l.emptied:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// receive waits for the next message. It returns io.EOF after the last one, and ctx's
// error if ctx ended.
func (l *lane) receive(ctx context.Context) (mem.BufferSlice, error) {
	for ctx.Err() == nil {
		l.mu.Lock()
		if len(l.queue) > 0 {
			b := l.queue[0]
			l.queue[0] = nil
			if l.queue = l.queue[1:]; len(l.queue) == 0 {
				l.queue = nil // an idle stream holds no memory
			}
			l.size -= b.Len() + perMessage
			l.mu.Unlock()
			notify(l.emptied)
			return b, nil
		}
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return nil, io.EOF
		}
		select {
		case <-l.filled:
		case <-ctx.Done():
		}
	}
	return nil, ctx.Err()
}

// close ends the lane behind the messages in it.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	notify(l.filled)
	notify(l.emptied)
}
