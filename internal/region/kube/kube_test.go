package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// TestWhatAnswersMean: a write is only ever said not to be made if the server says so, and
// an object only said to be absent if the server says that of this very object.
func TestWhatAnswersMean(t *testing.T) {
	claim := bodies[0].(stored.Claim)
	object := stored.Object{Place: "eu", Version: "7", Body: claim}
	read := stored.ReadOf("eu", stored.KindClaim, claim.Name())
	status := func(code int, reason, name string) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,
			"details":{"name":%q,"group":"region.xbernetes.io","kind":"claims"}}`, code, reason, name)
	}
	for name, test := range map[string]struct {
		request stored.Request
		code    int // 0: the connection ends
		body    string
		want    stored.Outcome
	}{
		"an absent object":                {read, 404, status(404, "NotFound", claim.Name()), stored.NotFound},
		"an absent object of another key": {read, 404, status(404, "NotFound", "k00"), stored.Refused},
		"a server without the kind":       {read, 404, "404 page not found", stored.Refused},
		"a list without the kind":         {stored.ListOf("eu", stored.KindClaim), 404, "404 page not found", stored.Refused},
		"an insert of what is there":      {stored.InsertOf("eu", claim), 409, status(409, "AlreadyExists", claim.Name()), stored.Conflict},
		"an insert with a conflict":       {stored.InsertOf("eu", claim), 409, status(409, "Conflict", claim.Name()), stored.Unknown},
		"a replace at an old version":     {stored.ReplaceOf(object, claim), 409, status(409, "Conflict", claim.Name()), stored.Conflict},
		"a replace of what is gone":       {stored.ReplaceOf(object, claim), 404, status(404, "NotFound", claim.Name()), stored.Conflict},
		"a remove at an old version":      {stored.RemoveOf(object), 409, status(409, "Conflict", claim.Name()), stored.Conflict},
		"a remove of what is gone":        {stored.RemoveOf(object), 404, status(404, "NotFound", claim.Name()), stored.NotFound},
		"no right":                        {stored.InsertOf("eu", claim), 403, status(403, "Forbidden", claim.Name()), stored.Refused},
		"an invalid object":               {stored.InsertOf("eu", claim), 422, status(422, "Invalid", claim.Name()), stored.Refused},
		"a server's time-out":             {stored.InsertOf("eu", claim), 504, status(504, "Timeout", ""), stored.Unknown},
		"a server that is too busy":       {stored.InsertOf("eu", claim), 429, status(429, "TooManyRequests", ""), stored.Unknown},
		"an error of the server":          {stored.ReplaceOf(object, claim), 500, status(500, "InternalError", ""), stored.Unknown},
		"a proxy without a server":        {read, 502, "<html>", stored.Unknown},
		"a connection that ends":          {stored.InsertOf("eu", claim), 0, "", stored.Unknown},
		"an answer that is none":          {stored.InsertOf("eu", claim), 201, "created", stored.Unknown},
		"an expired page":                 {stored.ListOf("eu", stored.KindClaim), 410, status(410, "Expired", ""), stored.Unknown},
		"another place":                   {stored.ReadOf("us", stored.KindClaim, claim.Name()), 200, "", stored.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				if test.code == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(test.code)
				fmt.Fprint(w, test.body)
			}))
			defer server.Close()
			places, err := New(map[stored.Place]*rest.Config{"eu": {Host: server.URL}})
			if err != nil {
				t.Fatal(err)
			}
			answer := places.Call(t.Context())(test.request)[0]
			if answer.Outcome != test.want {
				t.Errorf("the outcome is %q (%v), want %q", answer.Outcome, answer.Err, test.want)
			}
			if n := asked.Load(); n > 1 {
				t.Errorf("the server was asked %d times", n)
			}
		})
	}
}

// TestAnAnswerIsBounded: what a region sends is not held beyond what an object can have.
func TestAnAnswerIsBounded(t *testing.T) {
	claim := bodies[0].(stored.Claim)
	for payload, want := range map[int]stored.Outcome{maxObject / 2: stored.OK, maxObject: stored.Unknown} {
		claim.Payload = strings.Repeat("a", payload)
		text, err := json.Marshal(encode(claim, "7"))
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text) // the client may have enough of it
		}))
		defer server.Close()
		places, err := New(map[stored.Place]*rest.Config{"eu": {Host: server.URL}})
		if err != nil {
			t.Fatal(err)
		}
		if got := places.Call(t.Context())(stored.ReadOf("eu", stored.KindClaim, claim.Name()))[0]; got.Outcome != want {
			t.Errorf("%d bytes are answered with %s, %v; want %s", payload, got.Outcome, got.Err, want)
		}
	}
}
