package policy

import (
	"net/url"
	"testing"
	"time"
)

func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		status int
		unsent bool
		want   outcome
	}{
		{201, false, landed}, {200, false, landed}, {202, false, landed},
		{400, false, failed}, {403, false, failed}, {404, false, failed}, {409, false, failed},
		{422, false, failed}, {429, false, failed},
		{408, false, unknown}, {499, false, unknown},
		{302, false, unknown},
		{500, false, unknown}, {502, false, unknown}, {503, false, unknown}, {504, false, unknown}, {0, false, unknown},
		{502, true, failed}, {503, true, failed}, {0, true, failed},
	} {
		if got := outcomeOf(test.status, test.unsent); got != test.want {
			t.Errorf("status %d, unsent %v: %v, want %v", test.status, test.unsent, got, test.want)
		}
	}
}

func TestTheServerIsToldWhenToGiveUp(t *testing.T) {
	for in, want := range map[string]string{
		"/x":                              "/x?timeout=30s",
		"/x?fieldManager=a%2fb":           "/x?fieldManager=a%2fb&timeout=30s",
		"/x?timeout=10s":                  "/x?timeout=10s",
		"/x?timeout=1h&a=b":               "/x?a=b&timeout=30s",
		"/x?timeout=nonsense":             "/x?timeout=30s",
		"/x?timeout=-1s":                  "/x?timeout=30s",
		"/x?timeout=20s&timeout=1h&q=%3b": "/x?timeout=20s&timeout=1h&q=%3b", // the first counts, as in Kubernetes
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := withTimeout(u, 30*time.Second+time.Millisecond).String(); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		if u.String() != in {
			t.Errorf("%s was changed", in)
		}
	}
}

func FuzzParseReservation(f *testing.F) {
	f.Add([]byte(`{"spec":{"server":"s","group":"g","version":"v1","resource":"r","user":{"username":"u"},"timeoutSeconds":5}}`))
	f.Add([]byte(`{"spec":{"server":"s","version":"v1","resource":"r","user":{}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		res, err := parseReservation(body)
		if err != nil {
			return
		}
		if s := res.Spec; s.Server == "" || s.Version == "" || s.Resource == "" || s.TimeoutSeconds < 0 || s.User != nil && s.User.Username == "" {
			t.Errorf("accepted: %+v", s)
		}
	})
}
