package measure

import (
	"fmt"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/xbernetes/xbernetes/test/lab/network"
)

// Delay is a proxy to target that makes a round trip r longer, half of it each
// way, and a function that closes it.
func Delay(target string, r time.Duration) (addr string, closeProxy func(), err error) {
	addr = network.FreeAddr("127.0.0.1")
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "delay", addr, target)
	if err := proxy.Start(); err != nil {
		return "", nil, err
	}
	for _, stream := range []string{"upstream", "downstream"} {
		wrapper := fmt.Sprintf(`{"name":%q,"type":"latency","stream":%q,"attributes":{"latency":%d}}`, stream, stream, r.Milliseconds()/2)
		if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(wrapper)); err != nil {
			proxy.Stop()
			return "", nil, err
		}
	}
	return addr, proxy.Stop, nil
}
