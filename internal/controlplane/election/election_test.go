package election

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestHandsOver: one of two candidates works. When it stops, the other one takes
// over long before the lease would have run out.
func TestHandsOver(t *testing.T) {
	client := fake.NewClientset()
	pace := Pace{Lease: time.Hour, Renew: 30 * time.Minute, Retry: 10 * time.Minute}
	working := make(chan string, 2)
	watching := make(chan bool, 100) // receives when a candidate has begun to watch the lease
	client.PrependWatchReactor("leases", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(a.GetResource(), a.GetNamespace())
		watching <- true
		return true, w, err
	})
	run := func(id string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		c := Candidate{Client: client, ID: id, Pace: pace, Log: slog.New(slog.DiscardHandler)}
		go func() {
			ended <- c.Run(ctx, func(ctx context.Context) error {
				working <- id
				<-ctx.Done()
				return nil
			})
		}()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	stopA := run("a")
	if got := <-working; got != "a" {
		t.Fatalf("%s works; want a", got)
	}
	for len(watching) > 0 {
		<-watching // by a, which watches no more since it leads
	}
	stopB := run("b")
	defer stopB()
	<-watching
	select {
	case got := <-working:
		t.Fatalf("%s works beside a", got)
	default:
	}
	stopA()
	if got := <-working; got != "b" {
		t.Fatalf("%s works; want b", got)
	}
}

func TestPaceIsChecked(t *testing.T) {
	for _, c := range []struct {
		pace Pace
		good bool
	}{
		{Pace{Lease: 15, Renew: 10, Retry: 2}, true},
		{Pace{}, false},
		{Pace{Lease: 10, Renew: 10, Retry: 2}, false},
		{Pace{Lease: 15, Renew: 12, Retry: 10}, false}, // client-go adds up to a fifth to Retry
	} {
		if err := c.pace.Check(); (err == nil) != c.good || err != nil && !strings.Contains(err.Error(), "lease > renew") {
			t.Errorf("%v: %v; want good: %t", c.pace, err, c.good)
		}
	}
}
