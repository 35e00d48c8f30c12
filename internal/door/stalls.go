package door

import (
	"net/http"
	"time"
)

// Stalls bounds how many answers may be held up at once by callers who do not take
// them. An answer is held up once a part of it could not be sent for a second. It then
// needs one of so many places, shared among callers as Shares does, and is ended if
// there is none for its caller.
type Stalls struct {
	places *Shares
	after  time.Duration
}

// NewStalls makes Stalls with so many places; a negative number is no limit.
func NewStalls(limit int) *Stalls { return &Stalls{NewShares(limit), time.Second} }

// Writer returns a writer of one answer to a caller, which can do what w can.
func (s *Stalls) Writer(w http.ResponseWriter, caller string) http.ResponseWriter {
	paced := &stalling{&writer{w, &exchange{ctl: http.NewResponseController(w)}}, s, caller}
	if h, ok := w.(http.Hijacker); ok {
		return &stallingHijacker{paced, h}
	}
	return paced
}

// stallingHijacker is a stalling writer whose connection can be taken over.
type stallingHijacker struct {
	*stalling
	http.Hijacker
}

// stalling is a writer that needs a place once it is held up.
type stalling struct {
	*writer
	stalls *Stalls
	caller string
}

func (w *stalling) Write(p []byte) (n int, err error) {
	w.send(func() { n, err = w.ResponseWriter.Write(p) })
	return n, err
}

// Flush implements http.Flusher.
func (w *stalling) Flush() { _ = w.FlushError() }

// FlushError is Flush for a ResponseController.
func (w *stalling) FlushError() (err error) {
	w.send(func() { err = w.x.ctl.Flush() })
	return err
}

// send sends a part of the answer.
func (w *stalling) send(part func()) {
	placed := false // guarded by w.x.mu until watch returns
	w.x.watch(w.stalls.after, func() {
		if placed = w.stalls.places.Enter(w.caller); !placed {
			w.late()
		}
	}, part)
	if placed {
		w.stalls.places.Leave(w.caller)
	}
}
