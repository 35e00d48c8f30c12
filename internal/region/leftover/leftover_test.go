package leftover

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/api/region/client"
	"github.com/xbernetes/xbernetes/internal/region/regiontest"
)

// TestLeftovers: a region stops, a client gives up a create that needs it, and the region comes
// back. What was asked for is done once it has stood still from one look to the next, and not before;
// and it is counted.
func TestLeftovers(t *testing.T) {
	binary := regiontest.Binary(t)
	ctx, servers := t.Context(), map[string]*regiontest.Server{}
	config := client.Config{Register: "eu", Regions: map[string]*rest.Config{}}
	for _, name := range []string{"eu", "us"} {
		servers[name] = regiontest.Start(t, binary)
	}
	for name, s := range servers {
		config.Regions[name] = s.Ready(t)
	}
	var giveUp context.CancelFunc
	regions, err := client.Open(config, func(step string) {
		if strings.HasPrefix(step, "waiting") {
			giveUp()
		}
	})
	must(t, err)
	for _, name := range []string{"eu", "us"} {
		must(t, regions.Join(ctx, name))
	}
	eu, err := regions.In("eu")
	must(t, err)
	registry := prometheus.NewPedanticRegistry()
	c := Config{Region: eu, Grace: time.Minute, Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(registry)}
	if found := c.look(ctx, nil); len(found) != 0 {
		t.Errorf("at first, %v is left over", found)
	}

	servers["us"].Kill()
	var short context.Context
	short, giveUp = context.WithCancel(ctx)
	if _, err := eu.Create(short, client.Account, "team-a", client.Options{}); !errors.Is(err, client.ErrOpen) {
		t.Fatalf("the create without us ends with %v", err)
	}
	giveUp = func() {}
	servers["us"].Run(t)
	servers["us"].Ready(t)

	found := c.look(ctx, nil)
	if _, err := eu.Get(ctx, client.Account, "team-a"); len(found) != 2 || !errors.Is(err, client.ErrAbsent) {
		t.Errorf("the first look finds %v, want the operation and the claim; the account is %v, want it absent yet", found, err)
	}
	c.look(ctx, found)
	for _, name := range []string{"eu", "us"} {
		in, err := regions.In(name)
		must(t, err)
		if _, err := in.Get(ctx, client.Account, "team-a"); err != nil {
			t.Errorf("after the second look, %s has no account: %v", name, err)
		}
	}
	if found := c.look(ctx, nil); len(found) != 0 {
		t.Errorf("in the end, %v is left over", found)
	}
	if n := testutil.ToFloat64(c.Metrics.settled.WithLabelValues("ended")); n != 2 {
		t.Errorf("%v leftovers count as ended, want 2", n)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("the metrics break Prometheus' conventions: %v, %v", problems, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
