package metrics

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestHandlerAsksForToken: metrics are for this machine, and for whoever has the token.
func TestHandlerAsksForToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file, from, path, auth string
		code                   int
	}{
		{"", "127.0.0.1:5000", "/metrics", "", 200},
		{"", "[::1]:5000", "/metrics", "", 200},
		{"", "10.0.0.7:5000", "/metrics", "", 401},
		{"", "10.0.0.7:5000", "/metrics", "Bearer ", 401},
		{"", "10.0.0.7:5000", "/healthz", "", 200},
		{file, "10.0.0.7:5000", "/metrics", "", 401},
		{file, "10.0.0.7:5000", "/metrics", "Bearer wrong", 401},
		{file, "10.0.0.7:5000", "/metrics", "Basic secret", 401},
		{file, "10.0.0.7:5000", "/metrics", "Bearer secret", 200},
		{file + "-none", "10.0.0.7:5000", "/metrics", "Bearer ", 401},
		{os.DevNull, "10.0.0.7:5000", "/metrics", "Bearer ", 401},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.RemoteAddr = c.from
		if c.auth != "" {
			r.Header.Set("Authorization", c.auth)
		}
		w := httptest.NewRecorder()
		Handler(NewRegistry(), c.file).ServeHTTP(w, r)
		if w.Code != c.code {
			t.Errorf("%+v gets %d", c, w.Code)
		}
	}
}
