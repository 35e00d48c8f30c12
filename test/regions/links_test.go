package regions

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/xbernetes/xbernetes/test/lab/network"
)

// continents says where the regions are; within a continent there is no delay.
var continents = map[string]string{"paris": "eu", "milan": "eu", "boston": "us", "quito": "us", "tokyo": "ap"}

// roundTrip is the delay between two continents.
func roundTrip(a, b string) time.Duration {
	switch {
	case a == b:
		return 0
	case a == "ap" || b == "ap":
		return 200 * time.Millisecond
	}
	return 80 * time.Millisecond
}

// severed is a delay that outlasts the test.
const severed = time.Hour

// link is the way from one continent to the API of one region.
type link struct {
	proxy *toxiproxy.Proxy
	delay time.Duration // of a round trip
	addr  string        // HOST:PORT
}

var directions = []string{"upstream", "downstream"}

// newLink leads to the target, with a delay each way, until the test ends.
func newLink(t *testing.T, target string, delay time.Duration) *link {
	t.Helper()
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		t.Fatal(err)
	}
	l := &link{addr: network.FreeAddr(host), delay: delay} // the server has a certificate for its host
	l.proxy = toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "link", l.addr, target)
	if err := l.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.proxy.Stop)
	for _, d := range directions {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(latency(d, delay))); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func latency(direction string, roundTrip time.Duration) string {
	return fmt.Sprintf(`{"name":%q,"type":"latency","stream":%q,"attributes":{"latency":%d}}`, direction, direction, roundTrip.Milliseconds()/2)
}

// cut holds back whatever is under way, and whatever is sent from now on.
func (l *link) cut(t *testing.T) { l.set(t, severed) }

// heal lets pass what was held back: it arrives late, also if its sender is dead by now.
func (l *link) heal(t *testing.T) { l.set(t, l.delay) }

func (l *link) set(t *testing.T, roundTrip time.Duration) {
	t.Helper()
	for _, d := range directions {
		if _, err := l.proxy.Toxics.UpdateToxicJson(d, strings.NewReader(latency(d, roundTrip))); err != nil {
			t.Fatal(err)
		}
	}
}
