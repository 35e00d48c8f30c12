package reserve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/aggregation/v1alpha1"
)

const path = "/apis/aggregation.xbernetes.io/v1alpha1/namespaces/ns/reservations"

// gateway gives the answers that a test sets, and keeps the requests.
type gateway struct {
	status *metav1.Status // a refusal
	given  v1alpha1.ReservationStatus
	spec   v1alpha1.ReservationSpec
	asked  []string
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.asked = append(g.asked, r.Method+" "+r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != path {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if g.status != nil {
		w.WriteHeader(int(g.status.Code))
		_ = json.NewEncoder(w).Encode(g.status)
		return
	}
	var res v1alpha1.Reservation
	if err := json.NewDecoder(r.Body).Decode(&res); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	g.spec, res.Name, res.Status = res.Spec, "id", g.given
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(&res)
}

func clientOf(t *testing.T, g *gateway) *Client {
	t.Helper()
	s := httptest.NewServer(g)
	t.Cleanup(s.Close)
	c, err := New(&rest.Config{Host: s.URL}, "gadgets")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var request = Request{Namespace: "ns", Group: "example.com", Version: "v1", Resource: "gadgets",
	User: &v1alpha1.ReservationUser{Username: "ann"}, Timeout: 1500 * time.Millisecond}

func TestTheGatewayHearsWhatBecameOfACreate(t *testing.T) {
	limited := v1alpha1.ReservationStatus{Limited: true, TimeoutSeconds: 30}
	exists := apierrors.NewAlreadyExists(schema.GroupResource{Resource: "gadgets"}, "a")
	const reserved, landed, returned = "POST " + path, "POST " + path + "/id/landed", "DELETE " + path + "/id"
	for name, test := range map[string]struct {
		given v1alpha1.ReservationStatus
		err   error
		want  []string
	}{
		"created":            {limited, nil, []string{reserved, landed}},
		"it exists":          {limited, exists, []string{reserved, returned}},
		"said to be nothing": {limited, fmt.Errorf("%w: no room on the disk", ErrNotCreated), []string{reserved, returned}},
		"an error":           {limited, errors.New("connection lost"), []string{reserved}},
		"out of time":        {limited, apierrors.NewTimeoutError("too slow", 1), []string{reserved}},
		"an internal error":  {limited, apierrors.NewInternalError(errors.New("oops")), []string{reserved}},
		"nothing is limited": {v1alpha1.ReservationStatus{}, nil, []string{reserved}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gateway{given: test.given}
			err := clientOf(t, g).Create(t.Context(), request, func(ctx context.Context) error {
				if _, bounded := ctx.Deadline(); bounded != test.given.Limited {
					t.Errorf("the create may not take for ever: %v", bounded)
				}
				return test.err
			})
			if !errors.Is(err, test.err) {
				t.Errorf("%v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, g.asked); diff != "" {
				t.Error(diff)
			}
			if g.spec.Server != "gadgets" || g.spec.Version != "v1" || g.spec.User.Username != "ann" || g.spec.TimeoutSeconds != 2 {
				t.Errorf("asked for %+v", g.spec)
			}
		})
	}
}

func TestARefusalIsForTheUser(t *testing.T) {
	for code, reason := range map[int32]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 503: metav1.StatusReasonServiceUnavailable} {
		g := &gateway{status: &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: code, Reason: reason, Message: "exactly this"}}
		err := clientOf(t, g).Create(t.Context(), request, func(context.Context) error {
			t.Error("it was created all the same")
			return nil
		})
		if apierrors.ReasonForError(err) != reason || err.Error() != "exactly this" {
			t.Errorf("%d: %v", code, err)
		}
		if len(g.asked) != 1 {
			t.Errorf("asked %v", g.asked)
		}
	}
}

func TestAReservationThatTookTooLongIsGivenBack(t *testing.T) {
	g := &gateway{given: v1alpha1.ReservationStatus{Limited: true, TimeoutSeconds: -1}}
	err := clientOf(t, g).Create(t.Context(), request, func(context.Context) error {
		t.Error("it was created all the same")
		return nil
	})
	if !errors.Is(err, ErrNotCreated) || len(g.asked) != 2 || g.asked[1] != "DELETE "+path+"/id" {
		t.Errorf("%v, asked %v", err, g.asked)
	}
}
