package canonical

import (
	"fmt"
	"io"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// bodyMost is what an object may take, as in Kubernetes.
	bodyMost = 3 << 20
	// parsedMost is the greatest size of an object in YAML or CBOR, whose parsers use
	// much memory for few bytes.
	parsedMost = 1 << 20
	// bodiesMost is how many bytes all bodies together may take, and userMost the
	// bodies of one user. A body takes the bytes that have arrived, not its declared
	// length.
	bodiesMost = 256 << 20
	userMost   = 64 << 20
	// yamlMost is how many bodies may be parsed as YAML at once.
	yamlMost = 4
)

// Bodies bounds the memory of all bodies that are held at once. The zero value is ready; all
// methods are safe for concurrent use.
type Bodies struct {
	mu    sync.Mutex
	total int            // Invariant: the sum of users, at most bodiesMost
	users map[string]int // each above 0 and at most userMost
}

// take reserves n more bytes for a user's bodies, if there is room.
func (b *Bodies) take(user string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.total+n > bodiesMost || b.users[user]+n > userMost {
		return false
	}
	if b.users == nil {
		b.users = map[string]int{}
	}
	b.total += n
	b.users[user] += n
	return true
}

func (b *Bodies) give(user string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total -= n
	if b.users[user] -= n; b.users[user] == 0 {
		delete(b.users, user)
	}
}

// read reads a whole body. The caller must release its bytes, unless read returns an error.
func (b *Bodies) read(user string, from io.Reader) (body []byte, release func(), err error) {
	taken := 0
	release = sync.OnceFunc(func() { b.give(user, taken) })
	defer func() {
		if err != nil {
			release()
		}
	}()
	if from == nil {
		return nil, release, nil
	}
	for {
		if len(body) == cap(body) {
			grow := max(4<<10, cap(body))
			if !b.take(user, grow) {
				return nil, release, apierrors.NewTooManyRequests("the gateway holds too much of objects that are being written: try again in a second", 1)
			}
			taken += grow
			body = append(make([]byte, 0, cap(body)+grow), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > bodyMost:
			return nil, release, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object takes more than %d bytes", bodyMost))
		case err == io.EOF:
			return body, release, nil
		case err != nil:
			return nil, release, apierrors.NewBadRequest(fmt.Sprintf("read the object: %v", err))
		}
	}
}
