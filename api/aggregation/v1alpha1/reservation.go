package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Reservation asks the gateway to check a create, before a server that clients
// reach directly carries it out. The gateway checks what it checks of creates that
// pass through it: that the namespace exists, that the user may, and that the quota
// has room, all or nothing. The gateway serves it at
//
//	POST   /apis/aggregation.xbernetes.io/v1alpha1/namespaces/NS/reservations
//	POST   /apis/aggregation.xbernetes.io/v1alpha1/namespaces/NS/reservations/NAME/landed
//	DELETE /apis/aggregation.xbernetes.io/v1alpha1/namespaces/NS/reservations/NAME
//
// as JSON. The first request reserves. The second says that the object was created,
// and the third that it never will be. If neither is sent, the gateway finds out by
// listing the server's objects once the reservation has lapsed. A reservation is not
// stored: there is no get, list or watch.
//
// The caller needs the right to create reservations in the namespace, under the
// server's name.
//
// +kubebuilder:object:generate=false
type Reservation struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta has the namespace, and the name that the gateway chose.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the create that is asked for.
	Spec ReservationSpec `json:"spec"`
	// Status is the gateway's answer.
	Status ReservationStatus `json:"status,omitempty"`
}

// ReservationSpec is a create that is about to happen.
//
// +kubebuilder:object:generate=false
type ReservationSpec struct {
	// Server is the RemoteAPIServer that is about to create the object.
	Server string `json:"server"`
	// Group, Version and Resource are the kind of the object; the gateway must know
	// the group as the server's.
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	// User is who asked the server for the create, and whom the core server must
	// allow it. If it is not set, the server itself has checked that.
	User *ReservationUser `json:"user,omitempty"`
	// TimeoutSeconds is how long the create may take from now; the gateway's own
	// limit if it is 0 or longer than that limit.
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
	// DryRun asks whether there would be room, and reserves nothing.
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

// ReservationStatus is what was reserved.
//
// +kubebuilder:object:generate=false
type ReservationStatus struct {
	// Limited is false if there was nothing to reserve, because no quota is set and
	// the namespace is not guarded. Then nothing need be reported later.
	Limited bool `json:"limited,omitempty"`
	// TimeoutSeconds is how long the reservation lasts, from the request for it. No
	// create may begin after that.
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
}
