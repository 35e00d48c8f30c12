package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Caller calls a Service by its name all the while, each time with a new
// look-up and a new connection, from a pod of its own.
type Caller struct {
	URL string

	client http.Client
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	answered map[string]int // by the name of the pod that did
	failures []error        // no more than maxFailures
	failed   int
}

const maxFailures = 20

// NewCaller makes a pod in the cluster that calls http://NAME:PORT/. The name
// is a full one, such as web.shop.svc.cluster.local.
func (c *Cluster) NewCaller(name string, port int) (*Caller, error) {
	pod, err := c.newPod("", "caller")
	if err != nil {
		return nil, err
	}
	resolver := pod.resolver(net.JoinHostPort(dnsIP(c.number), "53"))
	call := &Caller{URL: fmt.Sprintf("http://%s:%d/", name, port), answered: map[string]int{}}
	call.client = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, proto, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			ips, err := resolver.LookupNetIP(ctx, "ip4", host+".") // with the dot, no search path
			if err != nil {
				return nil, err
			}
			return pod.net.DialContext(ctx, proto, net.JoinHostPort(ips[0].String(), port))
		},
	}}
	return call, nil
}

// Get is one call, and the name of the pod that answered.
func (c *Caller) Get(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

// Start calls on n connections at once, each every interval, until Stop.
func (c *Caller) Start(ctx context.Context, n int, interval time.Duration) {
	ctx, c.cancel = context.WithCancel(ctx)
	for range n {
		c.done.Go(func() {
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for {
				pod, err := c.Get(ctx)
				if ctx.Err() != nil {
					return // cut off by Stop
				}
				c.count(pod, err)
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
}

func (c *Caller) count(pod string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.answered[pod]++
		return
	}
	c.failed++
	if len(c.failures) < maxFailures {
		c.failures = append(c.failures, fmt.Errorf("%s: %w", time.Now().Format(time.StampMilli), err))
	}
}

// Stop ends the calls.
func (c *Caller) Stop() {
	c.cancel()
	c.done.Wait()
}

// Answered is how many calls each pod has answered so far.
func (c *Caller) Answered() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.answered)
}

// Failed is how many calls have failed, and the first of their errors.
func (c *Caller) Failed() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed, errors.Join(c.failures...)
}
