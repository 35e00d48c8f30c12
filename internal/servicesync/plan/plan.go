// Package plan holds what a decision about a Service asks for: writes of API
// objects, in their order, and events for people. It never decides anything, and
// it carries nothing out.
package plan

import (
	"bytes"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is an API object.
type Object interface {
	metav1.Object
	runtime.Object
}

// Verb is what a write does.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
	// UpdateStatus writes the status subresource only.
	UpdateStatus Verb = "update-status"
)

// Where says to which API a write goes to.
type Where string

// The values of Where.
const (
	Own          Where = "own"          // the cluster's own API
	Publications Where = "publications" // the API that the cluster publishes in; with the direct transport, its own
)

// Write is one change of one object.
type Write struct {
	Verb  Verb
	Where Where
	// Object is the object as it is to be; of a Delete, as it is.
	Object Object
	// Before is the object as it is. Invariant: set for Update and UpdateStatus,
	// nil for Create and Delete.
	//
	// If the cluster did not create the object itself, send only the difference.
	// An update is valid only if the stored resourceVersion is still Before's, a
	// delete only if the stored UID and resourceVersion are still Object's.
	// Otherwise drop all writes that remain, and decide again. Send an update that
	// changes nothing as well: it is there to fail if the object has changed.
	Before Object
	// Why explains the write in a dry run and in logs.
	Why string
}

// Created is the write that creates an object in the cluster's own API.
func Created(o Object, why string) Write { return Write{Create, Own, o, nil, why} }

// Updated is the write that replaces an object in the cluster's own API.
func Updated(before, o Object, why string) Write { return Write{Update, Own, o, before, why} }

// StatusUpdated is the write that replaces an object's status in the cluster's own API.
func StatusUpdated(before, o Object, why string) Write {
	return Write{UpdateStatus, Own, o, before, why}
}

// Deleted is the write that deletes an object in the cluster's own API.
func Deleted(o Object, why string) Write { return Write{Delete, Own, o, nil, why} }

// In returns the same write to another API.
func (w Write) In(place Where) Write {
	w.Where = place
	return w
}

// Same reports whether two objects are stored as the same bytes, in which an absent
// field and an empty one are equal. It takes a tenth of the time of a comparison by
// reflection, and most decisions need nothing else.
func Same[T interface{ Marshal() ([]byte, error) }](a, b T) bool {
	x, errX := a.Marshal()
	y, errY := b.Marshal()
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// Event is a Kubernetes Event about the Service.
type Event struct {
	// Type is Normal or Warning.
	Type   string
	Reason string
	Note   string
}

// Notes collect what one step of a decision has to say. The zero value is empty.
type Notes struct {
	said []note
}

// note is an event. Invariant: of the notes that are joined, at most one has the
// same key, unless that is empty.
type note struct {
	Event
	key string
}

// Warn adds an event about something that a person should mend.
func (n *Notes) Warn(reason, text string) {
	n.said = append(n.said, note{Event{corev1.EventTypeWarning, reason, text}, ""})
}

// WarnOnce adds a warning unless there is one with the same reason and key.
func (n *Notes) WarnOnce(reason, key, text string) {
	n.add(note{Event{corev1.EventTypeWarning, reason, text}, reason + " " + key})
}

// Inform adds an event about something that is in order.
func (n *Notes) Inform(reason, text string) {
	n.said = append(n.said, note{Event{corev1.EventTypeNormal, reason, text}, ""})
}

// Add adds the notes of a later step.
func (n *Notes) Add(later Notes) {
	for _, l := range later.said {
		n.add(l)
	}
}

func (n *Notes) add(l note) {
	if l.key == "" || !slices.ContainsFunc(n.said, func(s note) bool { return s.key == l.key }) {
		n.said = append(n.said, l)
	}
}

// Events are the notes in the order in which they were added; nil if there are none.
func (n *Notes) Events() []Event {
	var all []Event
	for _, s := range n.said {
		all = append(all, s.Event)
	}
	return all
}
