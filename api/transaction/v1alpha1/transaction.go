package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// The limits of a transaction. A server refuses one beyond them before it carries out
// anything.
const (
	MaxOperations = 100
	// MaxIdempotencyKey is the length of the longest idempotency key, in bytes.
	MaxIdempotencyKey = 128
)

// Transaction is a list of changes that a server makes together or not at all. It is
// created, and answered with its status; no server stores it.
//
// Creating one with dryRun=All checks all operations, and changes nothing.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type Transaction struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TransactionSpec `json:"spec"`
	// Status is set by the server. What a client sends is ignored.
	Status TransactionStatus `json:"status,omitempty"`
}

// TransactionSpec says what is to be changed.
type TransactionSpec struct {
	// IdempotencyKey makes it safe to send the same transaction again, after an answer
	// that was lost: if it was carried out, it is not carried out again, and the answer
	// says what it did. The same key with other operations is refused. A key is
	// remembered for an hour at least, for each user.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	// Operations are carried out in this order. Each sees the ones before it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	Operations []Operation `json:"operations"`
}

// Verb is what an operation does.
// +kubebuilder:validation:Enum=create;update;patch;apply;delete;assert
type Verb string

// The verbs of operations.
const (
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Apply  Verb = "apply"
	Delete Verb = "delete"
	Assert Verb = "assert"
)

// Operation is one request, as it could be sent alone: with the rights, the admission,
// the validation and the errors that it would have then.
type Operation struct {
	Verb Verb `json:"verb"`
	// Object is the whole object, for create, update and apply.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Object *runtime.RawExtension `json:"object,omitempty"`
	// Target names the object, for patch, delete and assert.
	// +optional
	Target *Target `json:"target,omitempty"`
	// Subresource is the part of the object that is changed: status, or empty for the
	// object itself. For update, patch and apply.
	// +optional
	// +kubebuilder:validation:Enum="";status
	Subresource string `json:"subresource,omitempty"`
	// PatchType says how Patch is written. For patch.
	// +optional
	PatchType PatchType `json:"patchType,omitempty"`
	// Patch is an object for merge and strategic, and a list for json. For patch.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Patch *runtime.RawExtension `json:"patch,omitempty"`
	// FieldManager is the name that the changed fields get, as for a plain request:
	// required for apply.
	// +optional
	FieldManager string `json:"fieldManager,omitempty"`
	// FieldValidation is Ignore, Warn or Strict, as for a plain request.
	// +optional
	// +kubebuilder:validation:Enum="";Ignore;Warn;Strict
	FieldValidation string `json:"fieldValidation,omitempty"`
	// Force takes fields from other managers. For apply.
	// +optional
	Force bool `json:"force,omitempty"`
	// Preconditions must hold. For delete and assert.
	// +optional
	Preconditions *Preconditions `json:"preconditions,omitempty"`
	// PropagationPolicy is Orphan, Background or Foreground. For delete.
	// +optional
	// +kubebuilder:validation:Enum="";Orphan;Background;Foreground
	PropagationPolicy metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`
	// Absent asserts that the object does not exist. For assert.
	// +optional
	Absent bool `json:"absent,omitempty"`
}

// Target names one object.
type Target struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Namespace is empty for an object of cluster scope.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// PatchType is how a patch is written.
// +kubebuilder:validation:Enum="";merge;json;strategic
type PatchType string

// The ways to write a patch.
const (
	MergePatch     PatchType = "merge"     // RFC 7386; a patch without a type is one
	JSONPatch      PatchType = "json"      // RFC 6902
	StrategicPatch PatchType = "strategic" // as kubectl patch; not for custom resources
)

// Preconditions are what an object must be.
type Preconditions struct {
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// TransactionStatus says what was done.
type TransactionStatus struct {
	// ResourceVersion is the version after the last change. The changed objects have
	// versions of their own, which follow each other up to it. Empty after a dry run.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Replayed says that an earlier request with the same idempotency key made the
	// changes, and this one none. The results name the objects then, and do not hold them.
	// +optional
	Replayed bool `json:"replayed,omitempty"`
	// Results are in the order of the operations.
	// +optional
	Results []Result `json:"results,omitempty"`
}

// Result is the answer to one operation.
type Result struct {
	// Code is the HTTP status that the operation would have been answered with.
	Code int32 `json:"code"`
	// Object is what the operation would have been answered with: the object, or a
	// Status.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Object *runtime.RawExtension `json:"object,omitempty"`
	// Warnings are what the server would have warned of.
	// +optional
	Warnings []string `json:"warnings,omitempty"`
}
