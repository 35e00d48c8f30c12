package door

import (
	"fmt"
	"log/slog"
	"net/http"
)

// Survive logs it if next panics, and has failed answer the request. It lets
// http.ErrAbortHandler through, with which a handler breaks off its answer.
func Survive(next http.Handler, log *slog.Logger, failed http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p))
				failed(w, r)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
