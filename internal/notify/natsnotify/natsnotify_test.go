package natsnotify

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/journal/natslog/natstest"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/notify/notifytest"
)

const subject = "xbernetes.hint.00"

// connects returns how to connect to a NATS server.
func connects(host string) func(...nats.Option) (*nats.Conn, error) {
	return func(options ...nats.Option) (*nats.Conn, error) { return nats.Connect("nats://"+host, options...) }
}

// serve runs a replica that is woken through NATS until the test ends. It polls at interval.
func serve(t *testing.T, host string, store journal.Store, interval time.Duration) *notifytest.Server {
	t.Helper()
	return notifytest.Serve(t, store, interval, func(log *slog.Logger) notify.Source {
		return New(Config{Connect: connects(host), Subject: subject, Logger: log})
	})
}

// pair is two servers of one journal that poll once an hour, so that only notifications
// wake them.
func pair(t *testing.T, host string) (a, b *notifytest.Server) {
	store := memlog.New(memlog.Options{})
	a, b = serve(t, host, store.Open(), time.Hour), serve(t, host, store.Open(), time.Hour)
	notifytest.Wakes(t, a, b)
	notifytest.Wakes(t, b, a)
	return a, b
}

func TestOneServerWakesAnother(t *testing.T) {
	a, b := pair(t, natstest.Start(t, nil).Host())
	notifytest.WakesEachOther(t, a, b)
}

// TestForgedNotificationsWakeNobody sends them as a user who may publish to the subject.
func TestForgedNotificationsWakeNobody(t *testing.T) {
	host := natstest.Start(t, nil).Host()
	a, b := pair(t, host)
	conn, err := nats.Connect("nats://" + host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	before := b.Woken.Counts()
	for _, payload := range []string{"", " ", "x", "-1", "99999999999999999999", "0", "1e3", strings.Repeat("9", 2*maxWaitingBytes)} {
		if err := conn.Publish(subject, []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	notifytest.Eventually(t, "one that can be read", func() bool {
		if err := conn.Publish(subject, []byte("1")); err != nil {
			t.Fatal(err)
		}
		return b.Woken.Counts().Received > before.Received
	})
	if c := b.Woken.Counts(); c.Received-c.Late != before.Received-before.Late {
		t.Errorf("a notification that cannot be read counts as one of an unknown slot: %+v before, %+v now", before, c)
	}
	b.Has(t, a.Put(t, "after"))
}

// TestServerThatDies: while it is gone the replica says so and polls; once it is back,
// notifications come again.
func TestServerThatDies(t *testing.T) {
	first, store := natstest.Start(t, nil), memlog.New(memlog.Options{})
	host := first.Host()
	a, b := serve(t, host, store.Open(), 10*time.Millisecond), serve(t, host, store.Open(), 10*time.Millisecond)
	notifytest.Wakes(t, a, b)
	first.Stop()
	notifytest.Eventually(t, "word of it", func() bool {
		return strings.Contains(b.Log.String(), "notifications failed") && b.Woken.Counts().Failed > 0
	})
	b.Has(t, a.Put(t, "meanwhile"))
	natstest.Start(t, func(o *server.Options) { o.Port = first.Options.Port })
	notifytest.Wakes(t, a, b)
	if !strings.Contains(b.Log.String(), "notifications work again") {
		t.Error("the log does not say that notifications work again")
	}
}

// TestMissingRight: a user who may not subscribe, or not publish, is told what is missing.
func TestMissingRight(t *testing.T) {
	nobody, other := &server.SubjectPermission{Deny: []string{"xbernetes.hint.>"}}, &server.SubjectPermission{Allow: []string{">"}}
	for name, rights := range map[string]*server.Permissions{
		"Subscription": {Subscribe: nobody, Publish: other},
		"Publish":      {Subscribe: other, Publish: nobody},
	} {
		t.Run(name, func(t *testing.T) {
			host := natstest.Start(t, func(o *server.Options) {
				o.Users = []*server.User{{Username: "party", Password: "party", Permissions: rights}}
			}).Host()
			store := memlog.New(memlog.Options{})
			a := serve(t, "party:party@"+host, store.Open(), 10*time.Millisecond)
			notifytest.Eventually(t, "word of it", func() bool {
				a.Put(t, "k")
				return strings.Contains(a.Log.String(), "lacks a right") && strings.Contains(a.Log.String(), "for "+name)
			})
			if strings.Contains(a.Log.String(), "party") {
				t.Errorf("the log has the credentials:\n%s", a.Log)
			}
		})
	}
}

// FuzzParse: whatever is published, parse returns; it reads no more than a number.
func FuzzParse(f *testing.F) {
	f.Add([]byte("7"))
	f.Add([]byte("18446744073709551615"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if slot := parse(payload); slot != 0 && strings.TrimLeft(string(payload), "0") != fmt.Sprint(uint64(slot)) {
			t.Errorf("%q is slot %d", payload, slot)
		}
	})
}
