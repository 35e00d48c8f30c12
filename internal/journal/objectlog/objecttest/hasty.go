package objecttest

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"
)

// Hasty is store with a clock that goes on by an hour with each answer. So a floor
// is old enough at once, and no answer counts without another look at the floors.
func Hasty(store http.Handler) http.Handler {
	var answers atomic.Int64
	began := time.Now()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		store.ServeHTTP(got, r)
		maps.Copy(w.Header(), got.Header())
		at := began.Add(time.Duration(answers.Add(1)) * time.Hour)
		w.Header().Set("Date", at.UTC().Format(http.TimeFormat))
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes()) // a client that is gone
	})
}
