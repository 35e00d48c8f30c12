package backend

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

// Reason says in one word why a request was not answered by its server. It is the type of
// the cause in the Status that the caller gets, and a label of metrics. The set is closed.
type Reason string

// The reasons.
const (
	Refused        Reason = "Refused"        // the gateway does not pass such a request on
	NoEndpoint     Reason = "NoEndpoint"     // every endpoint is down
	Unreachable    Reason = "Unreachable"    // no connection to an endpoint
	BadCertificate Reason = "BadCertificate" // the gateway does not accept the server's certificate, or the server the gateway's
	Broken         Reason = "Broken"         // the connection broke before the answer
	NoAnswer       Reason = "NoAnswer"       // no answer in time
	Stalled        Reason = "Stalled"        // the answer stopped half-way
	Redirect       Reason = "Redirect"       // the server sent the caller elsewhere
	NotKubernetes  Reason = "NotKubernetes"  // the answer is no Kubernetes object
	TooLarge       Reason = "TooLarge"       // the answer is larger than the gateway takes for itself
	BadCredentials Reason = "BadCredentials" // the server does not know the gateway
	Canceled       Reason = "Canceled"       // the caller went away
)

// fault is a Reason with its HTTP status, and a message that continues a sentence whose
// subject is the server.
type fault struct {
	code    int
	reason  Reason
	message string
}

// statusReasons are Kubernetes' reasons for a status code. A code that is not listed keeps
// the fault's Reason.
var statusReasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:         metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:       metav1.StatusReasonUnauthorized,
	http.StatusForbidden:          metav1.StatusReasonForbidden,
	http.StatusNotFound:           metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed:   metav1.StatusReasonMethodNotAllowed,
	http.StatusConflict:           metav1.StatusReasonConflict,
	http.StatusTooManyRequests:    metav1.StatusReasonTooManyRequests,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:     metav1.StatusReasonTimeout,
}

// StatusReason is Kubernetes' reason for a status code with which a front itself answers;
// metav1.StatusReasonUnknown, which is empty, if it has none.
func StatusReason(code int) metav1.StatusReason {
	if code == http.StatusInternalServerError {
		return metav1.StatusReasonInternalError
	}
	return statusReasons[code]
}

// status returns the fault as a Status of Kubernetes that names the server.
func (f fault) status(server string) *apierrors.StatusError {
	reason, ok := statusReasons[f.code]
	if !ok {
		reason = metav1.StatusReason(f.reason)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    int32(f.code),
		Reason:  reason,
		Message: fmt.Sprintf("API server %q %s", server, f.message),
		Details: &metav1.StatusDetails{
			Name: server, Group: v1alpha1.GroupName, Kind: v1alpha1.Resource().Resource,
			Causes: []metav1.StatusCause{{Type: metav1.CauseType(f.reason), Message: f.message}},
		},
	}}
}

// NewStatus returns the Status of a failure that the gateway met on the way to a server.
// message continues a sentence whose subject is the server.
func NewStatus(server string, code int, reason Reason, message string) *apierrors.StatusError {
	return fault{code, reason, message}.status(server)
}

// Responder writes Statuses in the encoding that the caller asked for. Make it
// with NewResponder.
type Responder struct{ codecs serializer.CodecFactory }

// NewResponder returns a Responder for JSON, YAML, protobuf and CBOR.
func NewResponder() *Responder {
	scheme := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{})
	return &Responder{codecs: serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo))}
}

// Respond writes err as a Status, in JSON if the caller accepts no known encoding.
func (s *Responder) Respond(w http.ResponseWriter, r *http.Request, err error) {
	if _, _, unknown := negotiation.NegotiateOutputMediaType(r, s.codecs, negotiation.DefaultEndpointRestrictions); unknown != nil {
		r = r.Clone(r.Context())
		r.Header.Set("Accept", "application/json")
	}
	responsewriters.RespondWithError(w, r, err, s.codecs)
}
