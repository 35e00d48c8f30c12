package replica_test

import (
	"context"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// memoryBucket is an object store in memory. Its clock is that of the test.
type memoryBucket struct {
	counts
	mu      sync.Mutex
	objects map[string]memoryObject
}

func newMemoryBucket() *memoryBucket { return &memoryBucket{objects: map[string]memoryObject{}} }

type memoryObject struct {
	data     []byte
	modified time.Time
}

// farBucket is the way to a memoryBucket, a round trip away.
type farBucket struct {
	*memoryBucket
	r time.Duration
}

// visit is one request: half a round trip, what the store does, and half a round trip.
func (b farBucket) visit(do func()) {
	time.Sleep(b.r / 2)
	b.mu.Lock()
	do()
	b.mu.Unlock()
	time.Sleep(b.r / 2)
}

func (b farBucket) Names() bucket.Names { return bucket.Names{Location: "memory", Store: "memory"} }
func (b farBucket) Close()              {}

func (b farBucket) Create(_ context.Context, name string, body []byte) (at time.Time, err error) {
	b.puts.Add(1)
	b.visit(func() {
		if _, ok := b.objects[name]; ok {
			err = bucket.ErrExists
			return
		}
		at = time.Now()
		b.objects[name] = memoryObject{body, at}
	})
	return at, err
}

func (b farBucket) Put(_ context.Context, name string, body []byte) error {
	b.puts.Add(1)
	b.visit(func() { b.objects[name] = memoryObject{body, time.Now()} })
	return nil
}

func (b farBucket) Get(_ context.Context, name string, most int64) (data []byte, at time.Time, err error) {
	b.gets.Add(1)
	b.visit(func() {
		o, ok := b.objects[name]
		at = time.Now()
		switch {
		case !ok:
			err = bucket.ErrAbsent
		case int64(len(o.data)) > most:
			err = bucket.ErrTooLong
		default:
			data = append([]byte{}, o.data...)
		}
	})
	return data, at, err
}

func (b farBucket) Exists(_ context.Context, name string) (held bool, err error) {
	b.gets.Add(1)
	b.visit(func() { _, held = b.objects[name] })
	return held, nil
}

func (b farBucket) Remove(_ context.Context, name string) error {
	b.deletes.Add(1)
	b.visit(func() { delete(b.objects, name) })
	return nil
}

func (b farBucket) List(_ context.Context, prefix, start, next string) (p bucket.Page, err error) {
	b.puts.Add(1)
	b.visit(func() {
		p.At = time.Now()
		for name, o := range b.objects {
			if strings.HasPrefix(name, prefix) && name > max(start, next) {
				p.Objects = append(p.Objects, bucket.Object{Name: name, Modified: o.modified})
			}
		}
	})
	sort.Slice(p.Objects, func(i, j int) bool { return p.Objects[i].Name < p.Objects[j].Name })
	if len(p.Objects) > bucket.MaxPage {
		p.Objects = p.Objects[:bucket.MaxPage]
		p.Next = p.Objects[len(p.Objects)-1].Name
	}
	return p, nil
}
