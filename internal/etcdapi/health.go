package etcdapi

import (
	"encoding/json"
	"net/http"
)

// healthAnswer is the answer of etcd's /health.
type healthAnswer struct {
	Health string `json:"health"` // "true" or "false"
	Reason string `json:"reason"`
}

// ServeHealth answers a GET of /health as etcd does: 200 if requests can be answered, 503
// with a reason if not. The reason does not name the journal, because anybody may ask.
func (s *Server) ServeHealth(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	h, status := healthAnswer{Health: "true"}, http.StatusOK
	if h.Reason = s.unhealthy(); h.Reason != "" {
		h.Health, status = "false", http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(h) // the caller may have gone
}

// unhealthy returns why requests cannot be answered; "" if they can.
func (s *Server) unhealthy() string {
	select {
	case <-s.replica.Done():
		return "STOPPED"
	default:
	}
	select {
	case <-s.replica.Ready():
	default:
		return "STARTING"
	}
	switch o := s.replica.Outage(); {
	case o == nil:
		return ""
	case o.WritesOnly:
		return "JOURNAL TAKES NO WRITES"
	default:
		return "JOURNAL DOES NOT ANSWER"
	}
}
