package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Reservation asks the gateway, before an object is created at a server that
// clients reach directly, for what the gateway itself holds over creates that
// pass through it: the namespace, the user's leave, the quota; all or nothing.
// It is served by the gateway at
//
//	POST   /apis/aggregation.xbernetes.io/v1alpha1/namespaces/NS/reservations
//	POST   /apis/aggregation.xbernetes.io/v1alpha1/namespaces/NS/reservations/NAME/landed
//	DELETE /apis/aggregation.xbernetes.io/v1alpha1/namespaces/NS/reservations/NAME
//
// and is JSON. The first reserves; one of the others says what became of it, a
// create that was carried out or one that never will be. Of a reservation of
// which neither is said the gateway finds out by itself, by listing what the
// server holds, once it has lapsed. It is not stored: there is no get, list or
// watch.
//
// The caller needs leave to create reservations in the namespace, under the
// server's name.
//
// +kubebuilder:object:generate=false
type Reservation struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta has the name that the gateway has given, and the namespace.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	Spec ReservationSpec `json:"spec"`
	// Status is what was given.
	Status ReservationStatus `json:"status,omitempty"`
}

// ReservationSpec is one create that is about to happen.
//
// +kubebuilder:object:generate=false
type ReservationSpec struct {
	// Server is the RemoteAPIServer that is about to create the object.
	Server string `json:"server"`
	// Group, Version and Resource say of what kind; the gateway must know the
	// group as the server's.
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	// User is who asked the server for the create. It is whom the core server
	// must allow it; without, the server answers for that.
	User *ReservationUser `json:"user,omitempty"`
	// TimeoutSeconds is how long from now on the create may take; the gateway's
	// own limit if 0 or more than that.
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
	// DryRun only says whether there would be room.
	DryRun bool `json:"dryRun,omitempty"`
}

// ReservationUser is who asked a server for a create, as the server has
// authenticated them; its fields are those of a TokenReview's user.
//
// +kubebuilder:object:generate=false
type ReservationUser struct {
	Username string              `json:"username"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// ReservationStatus is what a reservation is good for.
//
// +kubebuilder:object:generate=false
type ReservationStatus struct {
	// Limited is false if there was nothing to reserve, and hence nothing to say
	// later: no quota is set, and the namespace is not guarded.
	Limited bool `json:"limited,omitempty"`
	// TimeoutSeconds is how long from the request for it on the reservation is
	// good: a create must not begin to be carried out after that.
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
}
