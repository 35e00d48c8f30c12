package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Why a Ledger refuses a change.
var (
	ErrDraining   = errors.New("the namespace is being deleted")
	ErrNotHeld    = errors.New("the server's finalizer is not on the namespace")
	ErrReleasing  = errors.New("the server's finalizer is being taken off the namespace")
	ErrUncounted  = errors.New("the resource has not been counted")
	ErrExceeded   = errors.New("the quota is used up")
	ErrCrowded    = errors.New("too many creates are under way in the namespace")
	ErrShare      = errors.New("too many creates of one user are under way")
	ErrStale      = errors.New("the ledger is not the one that was read")
	ErrUnreadable = errors.New("the ledger cannot be read")
)

// Refused says whether err means that the newest ledger was read, and the change
// was not made. After any other error the change may have been made.
func Refused(err error) bool {
	for _, r := range []error{ErrNotFound, ErrDraining, ErrNotHeld, ErrReleasing, ErrUncounted, ErrExceeded, ErrCrowded, ErrShare, ErrStale} {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}

const (
	// maxPending is how many creates may be pending in one namespace. It keeps the
	// ledger's text to a fraction of what a ConfigMap may hold.
	maxPending = 2000
	// maxUserPending is how many of them may be of one user.
	maxUserPending = 200
	// NoLimit is the hard limit if there is no quota.
	NoLimit = -1
)

// Ledger is what all gateways together know about one namespace. Its methods
// decide and change; they do no I/O and read no clock. They are idempotent if not
// said otherwise, because a change whose write got no answer is made again to the
// ledger that is then found.
type Ledger struct {
	// Born is random: it tells this ledger from an earlier one of the namespace.
	Born string `json:"born"`
	// Released counts how often a server's finalizer was taken off the living
	// namespace. Invariant: it only grows.
	Released int64 `json:"left,omitempty"`
	// Draining says that the namespace is being deleted. Invariant: once it is set
	// it stays set, and no create becomes pending.
	Draining bool `json:"closed,omitempty"`
	// Held has the servers whose finalizer is on the namespace.
	Held map[string]Hold `json:"held,omitempty"`
	// Counts has what is known of each resource, by resource.group.
	Counts map[string]Count `json:"counts,omitempty"`
	// Pending has the creates that were let in and whose outcome is not written
	// yet, by their id.
	Pending map[string]Create `json:"flights,omitempty"`
}

// Hold is the state of a server's finalizer.
type Hold string

// The states of a finalizer; a server that Held does not have holds nothing.
const (
	Held      Hold = "held"    // the finalizer is on the namespace, and stays
	Releasing Hold = "leaving" // it is being taken off, because the server has no object there
)

// Count is what is known of one resource.
type Count struct {
	// Version is the API version of the create that was let in last: discovery may
	// not show, or not show yet, what exists.
	Version string `json:"version,omitempty"`
	// Landed counts the pending creates that ended and may have created an object.
	// Invariant: it only grows, so that a gateway can tell how many landed while it
	// was listing.
	Landed int64 `json:"landed,omitempty"`
	// Counted says that Used is kept, because a quota limits the resource.
	Counted bool `json:"counted,omitempty"`
	// Used is what the quota shows. Invariant, while Counted: Used is at least the
	// number of objects that exist plus the number of pending creates.
	Used int64 `json:"used,omitempty"`
	// Exact says that Used is from a list that was made while no create was
	// pending, and has followed every create since.
	Exact bool `json:"exact,omitempty"`
}

// Create is a pending create: it was let in, and its outcome is not written yet.
type Create struct {
	Server   string `json:"server"`
	Resource string `json:"resource"`
	Version  string `json:"version,omitempty"`
	// Seconds is how long a gateway must have seen the create pending before the
	// create has expired. Invariant: it is positive.
	Seconds int64 `json:"seconds"`
	// By is who made the reservation: a gateway, or a server's own user.
	By string `json:"by,omitempty"`
	// User is the UserKey of the user who creates; "" if the user is not known.
	User string `json:"user,omitempty"`
}

// UserKey is a short key for a user's name.
func UserKey(name string) string {
	if name == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// New makes an empty ledger. born must be random.
func New(born string) *Ledger {
	return &Ledger{
		Born:    born,
		Held:    map[string]Hold{},
		Counts:  map[string]Count{},
		Pending: map[string]Create{},
	}
}

// Parse reads what Encode wrote. The error is ErrUnreadable if text is anything else.
func Parse(text string) (*Ledger, error) {
	l := New("")
	if err := json.Unmarshal([]byte(text), l); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	fill(&l.Held)
	fill(&l.Counts)
	fill(&l.Pending)
	if l.Born == "" {
		return nil, fmt.Errorf("%w: it does not say when it was born", ErrUnreadable)
	}
	for r, c := range l.Counts {
		if c.Landed < 0 || c.Counted && c.Used < int64(l.PendingOf(r)) {
			return nil, fmt.Errorf("%w: %s has %d used with %d under way", ErrUnreadable, r, c.Used, l.PendingOf(r))
		}
	}
	for id, f := range l.Pending {
		if f.Seconds <= 0 {
			return nil, fmt.Errorf("%w: flight %s never lapses", ErrUnreadable, id)
		}
	}
	return l, nil
}

// fill makes the map if null was read.
func fill[M ~map[K]V, K comparable, V any](m *M) {
	if *m == nil {
		*m = M{}
	}
}

// Encode returns the ledger's text; equal ledgers have equal texts.
func (l *Ledger) Encode() string {
	text, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("encode a ledger: %v", err)) // it holds plain values only
	}
	return string(text)
}

// Clone returns a copy that shares nothing with the ledger.
func (l *Ledger) Clone() *Ledger {
	c := *l
	c.Held, c.Counts, c.Pending = maps.Clone(l.Held), maps.Clone(l.Counts), maps.Clone(l.Pending)
	return &c
}

// Reserve makes a create pending, if Used stays within the quota's limit hard.
// mustHold says that the server's finalizer has to be on the namespace.
func (l *Ledger) Reserve(id string, f Create, hard int64, mustHold bool) error {
	if _, again := l.Pending[id]; again {
		return nil
	}
	c := l.Counts[f.Resource]
	switch {
	case l.Draining:
		return ErrDraining
	case mustHold && l.Held[f.Server] == Releasing:
		return ErrReleasing
	case mustHold && l.Held[f.Server] != Held:
		return ErrNotHeld
	case hard != NoLimit && !c.Counted:
		return ErrUncounted
	case hard != NoLimit && c.Used+1 > hard:
		return ErrExceeded
	case len(l.Pending) >= maxPending:
		return ErrCrowded
	case f.User != "" && !l.shareLeft(f, hard):
		return ErrShare
	}
	if c.Counted {
		c.Used++
	}
	if f.Version != "" {
		c.Version = f.Version
	}
	l.Counts[f.Resource] = c
	l.Pending[id] = f
	return nil
}

// shareLeft says whether the user of f may have one more create pending. A user
// gets at most half, rounded up, of the quota that no object uses. So lost creates
// of one user leave room for others, as long as there is room for two objects.
func (l *Ledger) shareLeft(f Create, hard int64) bool {
	ofUser, ofBoth, ofResource := 0, int64(0), int64(0)
	for _, o := range l.Pending {
		if o.User == f.User {
			ofUser++
		}
		if o.Resource == f.Resource {
			ofResource++
			if o.User == f.User {
				ofBoth++
			}
		}
	}
	if ofUser >= maxUserPending {
		return false
	}
	free := hard - (l.Counts[f.Resource].Used - ofResource)
	return hard == NoLimit || ofBoth < (free+1)/2
}

// Landed ends a pending create whose object exists, or may exist.
func (l *Ledger) Landed(id string) {
	if f, ok := l.Pending[id]; ok {
		delete(l.Pending, id)
		c := l.Counts[f.Resource]
		c.Landed++
		l.Counts[f.Resource] = c
	}
}

// Failed ends a pending create that has created nothing, and never will.
func (l *Ledger) Failed(id string) {
	if f, ok := l.Pending[id]; ok {
		delete(l.Pending, id)
		c := l.Counts[f.Resource]
		if c.Counted {
			c.Used--
		}
		l.Counts[f.Resource] = c
	}
}

// LandedUnreserved counts an object that was created without a reservation. It is
// not idempotent: a repeated write counts twice, and the next list corrects that.
func (l *Ledger) LandedUnreserved(resource string) {
	c := l.Counts[resource]
	c.Landed++
	if c.Counted {
		c.Used++
		c.Exact = false
	}
	l.Counts[resource] = c
}

// List is a list of one resource's objects in the namespace.
type List struct {
	Resource string
	// Born and Landed are the ledger's, and its count's, before the list began.
	Born   string
	Landed int64
	// Expired has pending creates that had expired before the list began: the list
	// shows whether they created an object.
	Expired []string
	// Objects is how many objects there were.
	Objects int64
}

// Recount sets the count of a resource by a list. An object that exists now was
// listed, or is of a create that is pending now, or has landed since the list
// began. So the sum of the three is an upper bound, whatever happened since; it is
// exact if the latter two are 0.
func (l *Ledger) Recount(r List) error {
	if l.Born != r.Born {
		return ErrStale
	}
	c := l.Counts[r.Resource]
	since := c.Landed - r.Landed
	for _, id := range r.Expired {
		if f, ok := l.Pending[id]; ok && f.Resource == r.Resource {
			delete(l.Pending, id)
			c.Landed++
		}
	}
	pending := int64(l.PendingOf(r.Resource))
	bound := r.Objects + pending + since
	exact := pending == 0 && since == 0
	// Used is an upper bound as well, so the lower one is taken. The list wins if it
	// proves that objects were created around the gateways: it is exact, or shows
	// more than Used.
	if !c.Counted || bound <= c.Used || exact || r.Objects > c.Used {
		c.Used = bound
	}
	c.Counted, c.Exact = true, exact
	l.Counts[r.Resource] = c
	return nil
}

// Expire ends pending creates that have expired, if their resource's count does
// not matter because no quota limits it or the namespace is draining. Whether they
// landed is not known; they count as landed, for gateways that are listing.
func (l *Ledger) Expire(ids []string) {
	for _, id := range ids {
		if f, ok := l.Pending[id]; ok && (l.Draining || !l.Counts[f.Resource].Counted) {
			l.Landed(id)
		}
	}
}

// Uncount ends the counting of a resource, because no quota limits it any more.
func (l *Ledger) Uncount(resource string) {
	c := l.Counts[resource]
	l.Counts[resource] = Count{Version: c.Version, Landed: c.Landed}
}

// Hold records that the server's finalizer is on the namespace. The caller has
// seen the finalizer after reading a ledger with that born and released.
func (l *Ledger) Hold(server, born string, released int64) error {
	switch {
	case l.Born != born || l.Released != released:
		return ErrStale
	case l.Draining:
		return ErrDraining
	case l.Held[server] == Releasing:
		return ErrReleasing
	}
	l.Held[server] = Held
	return nil
}

// BeginRelease records that the server's finalizer will be taken off. The caller
// has seen that the server has no object in the namespace, after reading a ledger
// with that born and that EverLanded. It is refused if an object may exist since.
func (l *Ledger) BeginRelease(server, born string, landed int64) error {
	if l.Born != born || l.EverLanded() != landed || l.PendingAt(server) > 0 {
		return ErrStale
	}
	if _, ok := l.Held[server]; ok {
		l.Held[server] = Releasing
	}
	return nil
}

// EndRelease records that the finalizer is off. The caller has seen that after
// reading a ledger with that born and released.
func (l *Ledger) EndRelease(server, born string, released int64) error {
	if l.Born != born || l.Released != released || l.Held[server] != Releasing {
		return ErrStale
	}
	delete(l.Held, server)
	l.Released++
	return nil
}

// PendingOf is how many pending creates are of the resource.
func (l *Ledger) PendingOf(resource string) int {
	n := 0
	for _, f := range l.Pending {
		if f.Resource == resource {
			n++
		}
	}
	return n
}

// PendingAt is how many pending creates go to the server.
func (l *Ledger) PendingAt(server string) int {
	n := 0
	for _, f := range l.Pending {
		if f.Server == server {
			n++
		}
	}
	return n
}

// Versions has the resources of which objects may have been created, each with the
// API version of its last create.
func (l *Ledger) Versions() map[string]string {
	found := map[string]string{}
	for r, c := range l.Counts {
		if c.Version != "" {
			found[r] = c.Version
		}
	}
	return found
}

// EverLanded is the sum of Landed over all resources; it only grows.
func (l *Ledger) EverLanded() int64 {
	var n int64
	for _, c := range l.Counts {
		n += c.Landed
	}
	return n
}

// Servers are the servers that hold the namespace or have a pending create, sorted.
func (l *Ledger) Servers() []string {
	names := map[string]bool{}
	for s := range l.Held {
		names[s] = true
	}
	for _, f := range l.Pending {
		names[f.Server] = true
	}
	return slices.Sorted(maps.Keys(names))
}
