package bucket

import (
	"net/http"
	"time"
)

// idleConns is how many connections to a store are kept open for later requests: room for
// those that a caller sends at once.
const idleConns = 128

// Connections are those to one store. Stores whose SDK has none of its own use them.
func Connections() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		MaxIdleConns:        2 * idleConns,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
		DisableCompression:  true, // so that an answer says how long it is
		ForceAttemptHTTP2:   true,
	}
}

// NoRedirect has a client return a redirect as the answer: a store does not send one.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Date is the Date header of an answer: the store's own time. Zero if there was
// none.
func Date(header http.Header) time.Time {
	at, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return at
}
