// Package stored says what regions store to agree on who owns a key: claims,
// operations and the membership, as plain values. It never reads or writes a store.
package stored

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Region is the name of a region.
type Region string

// Epoch counts the changes of the Membership, from 1.
type Epoch uint64

// Attempt counts how often an operation had to reserve its key anew because the
// membership changed, from 1.
type Attempt uint64

// Window is a number that grows whenever old operations are collected. An operation has
// the window in which it was made.
type Window uint64

// Key is what has one owner in all regions, such as the name of an account.
type Key struct {
	Kind string // the kind of thing, such as Account
	Name string // its name, such as team-a, or two names with a slash between them
}

// ClaimName is the name of the key's Claim, the same in each region: a hash, because
// kinds and names need not be names of Kubernetes.
func (k Key) ClaimName() string {
	sum := sha256.Sum256([]byte(k.Kind + "\x00" + k.Name))
	return "k" + hex.EncodeToString(sum[:20])
}

// OpID names one operation for ever: it is carried out at most once, whoever asks for it
// and however often.
type OpID struct {
	Window Window
	Unique string // lower-case letters and digits, chosen by the caller
}

// String is the name of the operation's record.
func (id OpID) String() string { return strconv.FormatUint(uint64(id.Window), 10) + "-" + id.Unique }

// ParseOpID is the reverse of OpID.String.
func ParseOpID(s string) (OpID, error) {
	window, unique, ok := strings.Cut(s, "-")
	n, err := strconv.ParseUint(window, 10, 64)
	id := OpID{Window(n), unique}
	if !ok || err != nil || unique == "" || id.String() != s {
		return OpID{}, fmt.Errorf("%q is no operation's ID: want a number, a hyphen and a unique part", s)
	}
	return id, nil
}

// Kind is a kind of stored object.
type Kind string

// The three kinds of stored objects.
const (
	KindClaim      Kind = "Claim"
	KindOperation  Kind = "Operation"
	KindMembership Kind = "Membership"
)

// Body is what an object holds: a Claim, an Operation or a Membership. A body is never
// changed once it was handed over.
type Body interface {
	Kind() Kind
	Name() string // unique in its kind and place
}

// Phase says how far the operation that holds a claim has come in this region.
type Phase string

// The phases of a claim.
const (
	// Intent: an operation has reserved the key here. Whether it will own the key is
	// written in the operation's record.
	Intent Phase = "Intent"
	// Held: the key has an owner, and its home is another region.
	Held Phase = "Held"
	// Real: the key has an owner, and this region is its home.
	Real Phase = "Real"
	// Marked: Held or Real, and a delete operation has reserved the key here.
	Marked Phase = "Marked"
	// Tomb: the delete operation is committed. Tombs are removed once there are tombs
	// in all members.
	Tomb Phase = "Tomb"
	// FrozenIntent: an Intent of an operation whose home is no member any more. Nothing
	// that was read of it before holds now.
	FrozenIntent Phase = "FrozenIntent"
	// FrozenMark: the same of Marked.
	FrozenMark Phase = "FrozenMark"
	// Copy: a joining region has read the claim in another region, and does not know
	// yet whether it still stands there. A Copy decides nothing.
	Copy Phase = "Copy"
)

// Stake is what an operation writes into a claim.
type Stake struct {
	Op      OpID
	Home    Region // whose store has the operation's record, unless there is a central one
	Attempt Attempt
	Epoch   Epoch // the membership under which it was written
}

// Claim is the one object of a key in a region.
type Claim struct {
	Key     Key
	Phase   Phase
	Owner   Stake  // the operation that creates or has created what the key names
	Deleter Stake  // Invariant: not zero if and only if Phase is Marked, FrozenMark or Tomb
	WasReal bool   // whether it was Real before it was Marked
	Payload string // what the key names, as its owner's operation says
}

// Kind is KindClaim.
func (Claim) Kind() Kind { return KindClaim }

// Name is the same in all regions.
func (c Claim) Name() string { return c.Key.ClaimName() }

// Owned says whether the claim shows that the key has an owner.
func (c Claim) Owned() bool {
	return c.Phase == Held || c.Phase == Real || c.Phase == Marked || c.Phase == FrozenMark
}

// Final says whether no operation is to change the claim any more, unless a new one begins.
func (c Claim) Final() bool { return c.Phase == Held || c.Phase == Real }

// Frozen returns the Intent or marked claim, frozen.
func (c Claim) Frozen() Claim {
	switch c.Phase {
	case Intent:
		c.Phase = FrozenIntent
	case Marked:
		c.Phase = FrozenMark
	default:
	}
	return c
}

// Held returns the claim as one that stands in a region that is not its owner's home.
func (c Claim) Held() Claim {
	c.Phase = Held
	return c
}

// Buried returns the marked claim as a Tomb.
func (c Claim) Buried() Claim {
	c.Phase = Tomb
	return c
}

// Mark returns the owned claim, reserved for a delete operation.
func (c Claim) Mark(by Stake) Claim {
	if c.Phase != Marked {
		c.WasReal = c.Phase == Real
	}
	c.Phase, c.Deleter = Marked, by
	return c
}

// Unmark returns the marked claim as it was before.
func (c Claim) Unmark() Claim {
	c.Phase = Held
	if c.WasReal {
		c.Phase = Real
	}
	c.Deleter, c.WasReal = Stake{}, false
	return c
}

// Verb says what an operation is to do with its key.
type Verb string

// Verbs of operations.
const (
	Create Verb = "Create"
	Delete Verb = "Delete"
)

// State says how far an operation has come.
type State string

// The states of an operation. Pending becomes Committed or Aborted by one conditional
// write, and this is the only decision. Committed becomes Done; Done and Aborted are final.
const (
	Pending   State = "Pending"
	Committed State = "Committed"
	Aborted   State = "Aborted"
	Done      State = "Done"
)

// Reason says why an operation was aborted.
type Reason string

// Why operations are aborted.
const (
	Taken     Reason = "Taken"     // the key has an owner
	Absent    Reason = "Absent"    // there is nothing to delete
	Expired   Reason = "Expired"   // its window is over: nobody can tell whether it was carried out before
	NotActive Reason = "NotActive" // its home is not an active member
	Removed   Reason = "Removed"   // its home was removed: the other regions have decided
	Forbidden Reason = "Forbidden" // a member refused its reservation
	Contended Reason = "Contended" // another operation on the key went first
)

// Operation is the record of one operation, written ahead of all that it does.
type Operation struct {
	ID      OpID
	Verb    Verb
	Key     Key
	Home    Region
	Payload string // of a Create
	// Target is whose claim a Delete removes: the owner that was read before the record
	// was written. It never changes, so that a Delete cannot hit a later owner.
	Target     OpID
	TargetHome Region

	State   State
	Attempt Attempt
	Reason  Reason // if Aborted
	// Epoch is that of the membership at the decision; before it, an epoch that the
	// decision must not be older than.
	Epoch   Epoch
	Members []Region // at the decision; of Committed and Done only
}

// Kind is KindOperation.
func (Operation) Kind() Kind { return KindOperation }

// Name is the operation's ID.
func (o Operation) Name() string { return o.ID.String() }

// Stake is what the operation writes into claims under a membership.
func (o Operation) Stake(e Epoch) Stake { return Stake{o.ID, o.Home, o.Attempt, e} }

// MembershipName is the name of the one Membership in a place.
const MembershipName = "members"

// Member is one region of a membership.
type Member struct {
	Region Region
	Active bool  // false: it is joining, and keys are reserved in it, too
	Since  Epoch // the epoch in which it joined: whatever is older here is void
}

// Membership says which regions there are. One place holds the register that is true; the
// copies in the regions are only ever raised.
type Membership struct {
	Epoch   Epoch
	Horizon Window   // operations of other windows are not decided any more
	Members []Member // sorted by region, each once; at most one of them is joining
}

// Kind is KindMembership.
func (Membership) Kind() Kind { return KindMembership }

// Name is MembershipName.
func (Membership) Name() string { return MembershipName }

// Find returns the member of this name.
func (m Membership) Find(r Region) (Member, bool) {
	i := slices.IndexFunc(m.Members, func(x Member) bool { return x.Region == r })
	if i < 0 {
		return Member{}, false
	}
	return m.Members[i], true
}

// With returns the membership with x in it, in the place of the member of that name.
func (m Membership) With(x Member) Membership {
	i, found := slices.BinarySearchFunc(m.Members, x.Region, func(y Member, r Region) int {
		return strings.Compare(string(y.Region), string(r))
	})
	m.Members = slices.Clone(m.Members)
	if found {
		m.Members[i] = x
	} else {
		m.Members = slices.Insert(m.Members, i, x)
	}
	return m
}

// Without returns the membership without a region.
func (m Membership) Without(r Region) Membership {
	m.Members = slices.DeleteFunc(slices.Clone(m.Members), func(x Member) bool { return x.Region == r })
	return m
}

// Regions are all members, joining ones too.
func (m Membership) Regions() []Region {
	var all []Region
	for _, x := range m.Members {
		all = append(all, x.Region)
	}
	return all
}

// Covers says whether r has been a member ever since epoch e.
func (m Membership) Covers(r Region, e Epoch) bool {
	x, ok := m.Find(r)
	return ok && x.Since <= e
}
