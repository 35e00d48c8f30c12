package roster

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/xbernetes/xbernetes/api/servicesync/v1alpha1"
	"github.com/xbernetes/xbernetes/internal/servicesync/access"
	"github.com/xbernetes/xbernetes/internal/servicesync/clusterset"
	"github.com/xbernetes/xbernetes/internal/servicesync/peers"
)

// A restart is no silence of the peer's; one that was given up stays so.
func TestRecall(t *testing.T) {
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	lease := 40 * time.Second
	for _, test := range []struct {
		name  string
		heard time.Duration // before began
		state clusterset.Health
		after time.Duration // of reading
		want  clusterset.Health
	}{
		{"heard just now", time.Second, clusterset.Live, 0, clusterset.Live},
		{"long away", time.Hour, clusterset.Live, 0, clusterset.Live},
		{"long away, and silent for more than a renewal", time.Hour, clusterset.Live, 16 * time.Second, clusterset.Stale},
		{"long away, and silent", time.Hour, clusterset.Live, 36 * time.Second, clusterset.Expired},
		{"given up", time.Hour, clusterset.Expired, 0, clusterset.Expired},
	} {
		m := recall(v1alpha1.PeerStatus{
			Cluster: "b", Heard: &metav1.MicroTime{Time: began.Add(-test.heard)}, DurationSeconds: int32(lease.Seconds()), State: string(test.state),
		}, began)
		got, _ := clusterset.PeerState{Heard: m.heard, Duration: m.duration}.Health(began.Add(test.after))
		if got != test.want {
			t.Errorf("%s: %s; want %s", test.name, got, test.want)
		}
	}
	// What was never reached is no sooner given up, and no later, by a restart.
	for state, want := range map[string]clusterset.Health{unknown: clusterset.Live, string(clusterset.Expired): clusterset.Expired} {
		m := recall(v1alpha1.PeerStatus{Cluster: "b", State: state}, began)
		got, _ := m.peerState().Health(began)
		if said := statusOf("b", m, got); got != want || said.State != state || said.Heard != nil {
			t.Errorf("never reached and %s, it is %s and said to be %+v; want %s", state, got, said, want)
		}
	}
}

// A peer speaks for itself only, whatever its objects say.
func TestPeerSpeaksForItself(t *testing.T) {
	b := &Peer{id: "b"}
	web := v1alpha1.ServiceReference{Namespace: "shop", Name: "web"}
	if got := b.trusted("c", web); got != nil {
		t.Errorf("b is believed to speak for c about %v", got)
	}
	if got := b.trusted("b", web); len(got) != 1 || got[0].String() != "shop/web" {
		t.Errorf("b is not believed: %v", got)
	}
}

// quiet returns a roster of a cluster that logs nothing and tells nobody.
func quiet(own clusterset.ID) *Roster {
	return New(Config{Own: own, Log: slog.New(slog.DiscardHandler), Events: Events{
		Changed: func(types.NamespacedName, clusterset.ID, bool) {}, StandingChanged: func(*Peer) {}, Confirmed: func(*Peer) {},
	}})
}

// A peer that refuses connections is tried again later and later; once it is no
// longer read, nobody waits for the next time.
func TestRefusingPeerStopsAtOnce(t *testing.T) {
	for name, refusal := range map[string]http.RoundTripper{
		"no server": answers(func(*http.Request) (*http.Response, error) {
			return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
		}),
		"busy server": answers(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody}, nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, err := access.New(&rest.Config{Host: "http://refusing", Transport: refusal}, access.Pace{QPS: -1}, "test")
				if err != nil {
					t.Fatal(err)
				}
				p, err := quiet("b").newPeer("a", peers.Peer{Namespace: "sync"}, a, memory{heard: time.Now()})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				over := make(chan error)
				go func() { over <- p.run(ctx) }()
				time.Sleep(5 * time.Minute) // of the bubble's: the waits are as long as they get
				if !p.faulty() {
					t.Error("the peer is not said to be faulty")
				}
				stop()
				synctest.Wait()
				select {
				case <-over:
				default:
					t.Error("it is stopped, and has not ended")
					<-over
				}
			})
		})
	}
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// A Service that the informer lacks already, and that the roll still counts, is not confirmed
// to be gone.
func TestCountThatLagsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serves := answers(func(req *http.Request) (*http.Response, error) {
			query := req.URL.Query()
			switch {
			case query.Get("sendInitialEvents") != "":
				return &http.Response{StatusCode: http.StatusUnprocessableEntity, Body: http.NoBody}, nil
			case query.Get("watch") != "":
				<-req.Context().Done()
				return nil, req.Context().Err()
			}
			kind, items := "PublishedServiceList", ""
			if strings.HasSuffix(req.URL.Path, "/publishedslices") {
				kind = "PublishedSliceList"
			}
			if strings.HasSuffix(req.URL.Path, "/clusterleases") {
				kind, items = "ClusterLeaseList", `{"metadata": {"name": "c", "namespace": "sync"}, "spec": {"formatVersion": 1, "cluster": "c", "durationSeconds": 3600, "complete": true, "services": 1}}`
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(
				`{"apiVersion": "servicesync.xbernetes.io/v1alpha1", "kind": "` + kind + `", "metadata": {"resourceVersion": "1"}, "items": [` + items + `]}`))}, nil
		})
		a, err := access.New(&rest.Config{Host: "http://c", Transport: serves}, access.Pace{QPS: -1}, "test")
		if err != nil {
			t.Fatal(err)
		}
		r := quiet("a")
		p, err := r.newPeer("c", peers.Peer{Namespace: "sync"}, a, memory{heard: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		r.reading["c"] = &reading{Peer: p, stop: stop, over: over}
		go func() {
			defer close(over)
			_ = p.run(ctx)
		}()
		defer func() { r.end(r.all()...) }()
		time.Sleep(time.Minute) // of the bubble's: until all is read
		web, other := types.NamespacedName{Namespace: "shop", Name: "web"}, types.NamespacedName{Namespace: "shop", Name: "other"}
		confirmed := func() bool { return r.Peers(web, time.Now())["c"].Confirmed }
		if !p.synced() || confirmed() {
			t.Errorf("the peer is read: %t; its lease counts a Service that is not seen, and web is confirmed to be gone: %t", p.synced(), confirmed())
		}
		p.roll.set("sync/"+clusterset.PublicationName(other), true)
		if !confirmed() {
			t.Error("the one Service that the lease counts is another one, and web is not confirmed to be gone")
		}
		p.roll.set("sync/"+clusterset.PublicationName(other), false)
		p.roll.set("sync/"+clusterset.PublicationName(web), true)
		if confirmed() {
			t.Error("the roll counts a Service that the informer lacks, and it is confirmed to be gone")
		}
	})
}
