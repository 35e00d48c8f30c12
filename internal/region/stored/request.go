package stored

import "time"

// Place is where objects are stored: a region, or Central.
type Place string

// Central is the central store, if there is one.
const Central Place = ""

// Place is the region's own store.
func (r Region) Place() Place { return Place(r) }

// Version is the resourceVersion of a stored object. Nothing is known of it but that each
// write of an object gives it a version that the object never had.
type Version string

// Action is what a request does.
type Action string

// The actions.
const (
	// Read answers OK with the object, or NotFound.
	Read Action = "read"
	// List answers OK with all objects of a kind.
	List Action = "list"
	// Insert creates an object, and answers OK with it, or Conflict if there is one.
	Insert Action = "insert"
	// Replace changes an object that still has the version, and answers OK with it, or
	// Conflict.
	Replace Action = "replace"
	// Remove deletes an object that still has the version, and answers OK, NotFound or
	// Conflict.
	Remove Action = "remove"
)

// Request is one call to one place.
type Request struct {
	Action  Action
	Place   Place
	Kind    Kind
	Name    string  // not of a List
	Body    Body    // of Insert and Replace
	Version Version // of Replace and Remove
}

// Outcome says what came of a request.
type Outcome string

// The outcomes.
const (
	OK       Outcome = "ok"
	NotFound Outcome = "not found"
	Conflict Outcome = "conflict"
	// Unknown: there is no answer. A write may have been made, may be made later, or
	// never.
	Unknown Outcome = "unknown"
	// Refused: it was not carried out, and would not be another time: the caller has no
	// right to it, or what is stored cannot be read.
	Refused Outcome = "refused"
)

// Object is a body as it is stored.
type Object struct {
	Place   Place
	Version Version
	Body    Body
	// Created is when, by the clock of the place. It is for people: no decision is made by it.
	Created time.Time
}

// Answer is what a place says to a request.
type Answer struct {
	Outcome Outcome
	Object  Object   // if OK, but for List and Remove
	Objects []Object // of a List
	Err     error    // why there is no answer, or was refused
}

// Call carries requests out, side by side, and returns their answers in the same order,
// once it has them all. Each request is atomic and linearizable by itself: a Read or List
// sees every write that was answered before it was called. Together they are not.
type Call func(requests ...Request) []Answer

// ReadOf asks for an object.
func ReadOf(p Place, k Kind, name string) Request {
	return Request{Action: Read, Place: p, Kind: k, Name: name}
}

// ListOf asks for all objects of a kind.
func ListOf(p Place, k Kind) Request { return Request{Action: List, Place: p, Kind: k} }

// InsertOf creates an object.
func InsertOf(p Place, b Body) Request {
	return Request{Action: Insert, Place: p, Kind: b.Kind(), Name: b.Name(), Body: b}
}

// ReplaceOf changes the object that was read.
func ReplaceOf(o Object, b Body) Request {
	return Request{Action: Replace, Place: o.Place, Kind: b.Kind(), Name: b.Name(), Body: b, Version: o.Version}
}

// RemoveOf deletes the object that was read.
func RemoveOf(o Object) Request {
	return Request{Action: Remove, Place: o.Place, Kind: o.Body.Kind(), Name: o.Body.Name(), Version: o.Version}
}
