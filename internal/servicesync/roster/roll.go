package roster

import "sync"

// roll is the set of names of a peer's publications, kept by the informer's handlers. They
// run after the informer has changed, so that the roll is never ahead of the informer.
type roll struct {
	mu    sync.Mutex
	names map[string]bool // NAMESPACE/NAME; guarded by mu
}

func (r *roll) set(name string, there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !there {
		delete(r.names, name)
		return
	}
	if r.names == nil {
		r.names = make(map[string]bool)
	}
	r.names[name] = true
}

// count returns how many names there are, and whether name is among them.
func (r *roll) count(name string) (n int, has bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.names), r.names[name]
}
