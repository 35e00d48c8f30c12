package door

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
)

const (
	// block is by how much room for bodies is given out, in bytes.
	block = 64 << 10
	// mostCollected is how much of one body is waited for; what is longer streams.
	mostCollected = 4 << 20
)

// Collect waits for the bodies of requests before it hands them on, so that one
// that does not come holds nothing of what is behind. All bodies together take
// at most so many bytes, of which those from one address have as many as are
// free; a request beyond that is refused with 429. It belongs behind Pace, which
// ends what does not come. Requests that streams names are handed on at once; nil
// names none.
func Collect(next http.Handler, most int, streams func(*http.Request) bool) http.Handler {
	room := NewShares(most / block)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || streams != nil && streams(r) {
			next.ServeHTTP(w, r)
			return
		}
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}
		var got bytes.Buffer
		for err = nil; err == nil && got.Len() < mostCollected; {
			if !room.Enter(host) {
				w.Header().Set("Retry-After", "1")
				refuse(w, http.StatusTooManyRequests, "TooManyRequests", "too many request bodies are under way, in all or from this address: try again in a second")
				return
			}
			defer room.Leave(host)
			_, err = io.CopyN(&got, r.Body, block)
		}
		if errors.Is(err, ErrSlow) {
			refuse(w, http.StatusRequestTimeout, "Timeout", err.Error())
			return
		}
		r.Body = collected{io.MultiReader(&got, r.Body), r.Body}
		next.ServeHTTP(w, r)
	})
}

// collected is a body of which the beginning is there. Its end, or what went
// wrong, comes from what it was read from.
type collected struct {
	io.Reader
	io.Closer
}

// refuse answers with a Kubernetes Status.
func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{ // the caller may be gone
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{},
		"status": "Failure", "code": code, "reason": reason, "message": message,
	})
}
