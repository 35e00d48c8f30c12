package natslog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/natslog/natstest"
)

// admin is a connection of the test's own, past the driver.
func admin(t testing.TB, s *natstest.Server) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// A lossy proxy stands between a journal and its server. While lose is set, it ends a
// connection as soon as the server acknowledges a publish, so that the answer is lost.
type lossy struct {
	listener net.Listener
	lose     atomic.Bool
}

func newLossy(t *testing.T, s *natstest.Server) *lossy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossy{listener: listener}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); all.Wait() })
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.carry(client, s.Host()) })
		}
	})
	return p
}

func (p *lossy) carry(client net.Conn, to string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer upstream.Close()
	go func() {
		_, _ = io.Copy(upstream, client)
		_ = upstream.Close()
	}()
	buf := make([]byte, 1<<16)
	for {
		n, err := upstream.Read(buf)
		if err != nil || p.lose.Load() && bytes.Contains(buf[:n], []byte(`"stream":`)) && bytes.Contains(buf[:n], []byte(`"seq":`)) {
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestLostAnswers: whether a record was stored whose acknowledgement was lost, is
// unknown to the caller, who finds out by the same bytes once more.
func TestLostAnswers(t *testing.T) {
	p := newLossy(t, natstest.Start(t, nil))
	l := open(t, config(t, "nats://"+p.listener.Addr().String()+"/lost?synced=true"))
	for slot := journal.Slot(1); slot <= 5; slot++ {
		p.lose.Store(true)
		err := l.Append(t.Context(), slot, []byte("mine"))
		p.lose.Store(false)
		if err == nil || errors.Is(err, journal.ErrTaken) || errors.Is(err, journal.ErrAhead) {
			t.Fatalf("Append(%d) whose answer is lost = %v, want an unknown outcome", slot, err)
		}
		if rec := peek(t, l, slot); string(rec) != "mine" {
			t.Fatalf("Peek(%d) = %q: the record was not stored, so that nothing is tested", slot, rec)
		}
		if err := l.Append(t.Context(), slot, []byte("mine")); err != nil {
			t.Errorf("Append(%d) of the same bytes = %v", slot, err)
		}
		if err := l.Append(t.Context(), slot, []byte("another's")); !errors.Is(err, journal.ErrTaken) {
			t.Errorf("Append(%d) of other bytes = %v, want %v", slot, err, journal.ErrTaken)
		}
	}
}

// peek looks at a slot until the journal answers: it may have to connect again.
func peek(t *testing.T, l *Log, slot journal.Slot) []byte {
	t.Helper()
	for {
		rec, err := l.Peek(t.Context(), slot)
		if err == nil {
			return rec
		}
		if errors.Is(err, journal.ErrCorrupt) || between.Pause(t.Context(), 1) != nil {
			t.Fatal(err)
		}
	}
}

// writers append records, each its own, as callers must: at an unknown outcome the same
// bytes again to the same slot.
type writers struct {
	mu    sync.Mutex
	acked map[journal.Slot]string
	all   sync.WaitGroup
}

func (w *writers) start(ctx context.Context, name string, l *Log) {
	w.all.Go(func() {
		slot := journal.Slot(1)
		for n := 0; ctx.Err() == nil; n++ {
			rec := fmt.Sprint(name, " ", n)
			for stored := false; !stored && ctx.Err() == nil; {
				err := l.Append(ctx, slot, []byte(rec))
				switch {
				case err == nil:
					w.mu.Lock()
					w.acked[slot] = rec
					w.mu.Unlock()
					stored = true
					slot++
				case errors.Is(err, journal.ErrTaken):
					slot++
				default:
					_ = between.Pause(ctx, 3)
				}
			}
		}
	})
}

func (w *writers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// await waits until so many more records are acknowledged.
func (w *writers) await(t *testing.T, more int) {
	t.Helper()
	for target := w.count() + more; w.count() < target; {
		if between.Pause(t.Context(), 3) != nil {
			t.Fatal("no more records are acknowledged")
		}
	}
}

// check compares what the journal holds with what was acknowledged: each record at its
// slot, and none twice.
func (w *writers) check(t *testing.T, l *Log) {
	t.Helper()
	peek(t, l, 1)
	recs, err := l.Read(t.Context(), 1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, rec := range recs {
		if seen[string(rec)] {
			t.Errorf("record %q is in the journal twice", rec)
		}
		seen[string(rec)] = true
		if want, ok := w.acked[journal.Slot(i+1)]; ok && want != string(rec) {
			t.Errorf("slot %d holds %q; acknowledged was %q", i+1, rec, want)
		}
	}
	for slot, rec := range w.acked {
		if int(slot) > len(recs) {
			t.Errorf("slot %d is lost; acknowledged was %q", slot, rec)
		}
	}
	t.Logf("%d of %d records were acknowledged", len(w.acked), len(recs))
}

// TestKills: whatever was acknowledged before the server is killed is there after it, at
// the slot that was acknowledged.
func TestKills(t *testing.T) {
	process := natstest.StartProcess(t)
	w := &writers{acked: map[journal.Slot]string{}}
	for kill := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		l := open(t, config(t, process.URL("kills")))
		for n := range 4 {
			w.start(ctx, fmt.Sprint(kill, " ", n), l)
		}
		w.await(t, 20)
		process.Kill()
		cancel()
		w.all.Wait()
		process.Restart(t)
		w.check(t, open(t, config(t, process.URL("kills"))))
	}
}

// TestLeaderKilled: whatever a cluster acknowledged is there after its stream's leader
// ends amid appends, and what was stored without an acknowledgement is there once.
func TestLeaderKilled(t *testing.T) {
	servers := natstest.Cluster(t)
	cfg := fresh(t, servers...)
	w := &writers{acked: map[journal.Slot]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for n := range 3 {
		w.start(ctx, fmt.Sprint(n), open(t, cfg))
	}
	w.await(t, 50)
	natstest.Leader(servers, cfg.Name).Stop()
	w.await(t, 50)
	cancel()
	w.all.Wait()
	w.check(t, open(t, cfg))
}

// TestLatePublish: a publish that arrives after its slot was trimmed fills nothing.
func TestLatePublish(t *testing.T) {
	l := open(t, fresh(t, natstest.Start(t, nil)))
	for slot := journal.Slot(1); slot <= 9; slot++ {
		if err := l.Append(t.Context(), slot, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := l.Trim(t.Context(), 10); err != nil || n != 9 {
		t.Fatal(n, err)
	}
	for slot := journal.Slot(1); slot <= 9; slot++ {
		frame := format.Encode(slotName(slot), l.info.ID, []byte("late"))
		if _, err := l.server.publish(t.Context(), l.records.subject, condition(jetstream.ExpectedLastSeqHeader, uint64(slot-1)), frame); !isCode(err, codeWrongLast) {
			t.Errorf("a late publish to slot %d = %v", slot, err)
		}
	}
	if rec, err := l.Peek(t.Context(), 10); rec != nil || err != nil {
		t.Errorf("Peek(10) = %q, %v; want nothing", rec, err)
	}
}

// TestRacingCreation: of several servers that create a journal at once, all get the
// same one.
func TestRacingCreation(t *testing.T) {
	cfg := fresh(t, natstest.Start(t, nil))
	var all sync.WaitGroup
	var ids [8]journal.ID
	for n := range ids {
		all.Go(func() { ids[n] = open(t, cfg).Info().ID })
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] || id == (journal.ID{}) {
			t.Errorf("the ids are %v", ids)
		}
	}
}

// TestMadeAnew: after a journal was deleted and made anew, nothing that was meant for
// the earlier one gets into the later one, and none of its records is read.
func TestMadeAnew(t *testing.T) {
	s := natstest.Start(t, nil)
	cfg := fresh(t, s)
	early := open(t, cfg)
	for _, name := range []string{cfg.Name, cfg.Name + "_blobs"} {
		if err := admin(t, s).DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	late := open(t, cfg)
	if err := early.Append(t.Context(), 1, []byte("x")); err == nil || errors.Is(err, journal.ErrTaken) || errors.Is(err, journal.ErrAhead) {
		t.Errorf("Append to a journal that is gone = %v", err)
	}
	for range 2 { // without records, and with one
		if _, err := early.Read(t.Context(), 1, 1); !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("Read of a journal that is gone = %v, want %v", err, journal.ErrCorrupt)
		}
		if err := late.Append(t.Context(), 1, []byte("y")); err != nil {
			t.Error(err)
		}
	}
}

// TestDamage: a slot whose message is lost or was put there past the driver is neither
// empty nor a record.
func TestDamage(t *testing.T) {
	s := natstest.Start(t, nil)
	l := open(t, fresh(t, s))
	js := admin(t, s)
	for range 2 {
		if _, err := js.Publish(t.Context(), l.records.subject, []byte("no frame")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Peek(t.Context(), 1); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("Peek at what is no frame = %v, want %v", err, journal.ErrCorrupt)
	}
	if err := l.Append(t.Context(), 1, []byte("x")); err == nil || errors.Is(err, journal.ErrTaken) {
		t.Errorf("Append to a slot that holds no frame = %v", err)
	}
	open := recordsConfig(Config{Name: "open", Replicas: 1}, l.info.ID, l.records.most)
	open.DenyDelete = false // a stream that Open refuses
	created, err := js.CreateStream(t.Context(), open)
	if err != nil {
		t.Fatal(err)
	}
	lost := records{stream: stream{l.server, "open"}, id: l.info.ID, subject: open.Subjects[0], most: l.records.most}
	for slot := journal.Slot(1); slot <= 3; slot++ {
		if err := lost.append(t.Context(), slot, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := created.DeleteMsg(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := lost.read(t.Context(), 1, 3); !errors.Is(err, journal.ErrCorrupt) || !strings.Contains(err.Error(), "lost the message of slot 2") {
		t.Errorf("Read over a lost message = %v, want %v", err, journal.ErrCorrupt)
	}
}

// TestDamagedBlobs: a blob whose chunks are altered or gone is not returned, and can be
// put again.
func TestDamagedBlobs(t *testing.T) {
	s := natstest.Start(t, nil)
	l := open(t, fresh(t, s))
	js := admin(t, s)
	data := bytes.Repeat([]byte("x"), 3*mostChunk/2)
	put := func() head {
		t.Helper()
		if err := l.PutBlob(t.Context(), "a/b.c", data); err != nil {
			t.Fatal(err)
		}
		h, _, err := l.blobs.head(t.Context(), "a/b.c")
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := put()
	if _, err := js.Publish(t.Context(), l.chunkSubject("a/b.c", h.Part, "1"), bytes.Repeat([]byte("y"), mostChunk/2)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.GetBlob(t.Context(), "a/b.c"); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("GetBlob of an altered blob = %v, want %v", err, journal.ErrCorrupt)
	}
	h = put()
	if info, err := l.look(t.Context(), infoRequest{}); err != nil || info.State.Msgs != 3 {
		t.Errorf("%d messages are there of a blob that was put twice (%v), want its head and two chunks", info.State.Msgs, err)
	}
	l.deleteChunks(t.Context(), "a/b.c", h)
	if _, err := l.GetBlob(t.Context(), "a/b.c"); !errors.Is(err, journal.ErrNoBlob) {
		t.Errorf("GetBlob of a blob without chunks = %v, want %v", err, journal.ErrNoBlob)
	}
	if _, err := js.Publish(t.Context(), l.headSubject("a/b.c"), []byte("no frame")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.GetBlob(t.Context(), "a/b.c"); !errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("GetBlob of a blob without a head = %v, want %v", err, journal.ErrCorrupt)
	}
	put()
	if got, err := l.GetBlob(t.Context(), "a/b.c"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("GetBlob = %d bytes, %v", len(got), err)
	}
	if err := l.DeleteBlob(t.Context(), "a/b.c"); err != nil {
		t.Fatal(err)
	}
	info, err := l.look(t.Context(), infoRequest{})
	if err != nil || info.State.Msgs != 0 {
		t.Errorf("%d messages are left of a deleted blob (%v)", info.State.Msgs, err)
	}
}

// TestWhatIsRefused: a stream that may lose, change or hide records is refused in a
// sentence, and nothing is written.
func TestWhatIsRefused(t *testing.T) {
	s := natstest.Start(t, nil)
	js := admin(t, s)
	for want, change := range map[string]func(*jetstream.StreamConfig){
		"storage: memory":      func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"persist_mode: async":  func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode },
		"no_ack":               func(c *jetstream.StreamConfig) { c.NoAck = true },
		"sealed":               func(c *jetstream.StreamConfig) { c.Sealed = true },
		"a retention other":    func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"discard: old":         func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardOld, 1<<20 },
		"max_age":              func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"max_msgs_per_subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
		"the subjects":         func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, c.Name+".others") },
		"a mirror or sources":  func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "others"}} },
		"a subject_transform": func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: ">", Destination: "x.>"}
		},
		"allow_direct":        func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"allow_rollup_hdrs":   func(c *jetstream.StreamConfig) { c.AllowRollup = true },
		"allow_msg_ttl":       func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
		"counters, schedules": func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = true },
		"deny_delete: false":  func(c *jetstream.StreamConfig) { c.DenyDelete = false },
		"deny_purge":          func(c *jetstream.StreamConfig) { c.DenyPurge = true },
		"a first_seq":         func(c *jetstream.StreamConfig) { c.FirstSeq = 7 },
		"max_msg_size: 1000":  func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 },
		"max_msg_size: -1":    func(c *jetstream.StreamConfig) { c.MaxMsgSize = -1 },
		"is no journal":       func(c *jetstream.StreamConfig) { c.Metadata = nil },
		"use the xb that wrote it, or a newer one":                                   func(c *jetstream.StreamConfig) { c.Metadata[metaFormat] = "99" },
		"journal has an older format (2; this xb reads 3); use the xb that wrote it": func(c *jetstream.StreamConfig) { c.Metadata[metaFormat] = "2" },
		"its id is \"short\"":     func(c *jetstream.StreamConfig) { c.Metadata[metaJournal] = "short" },
		"its format is \"three\"": func(c *jetstream.StreamConfig) { c.Metadata[metaFormat] = "three" },
	} {
		t.Run(want, func(t *testing.T) {
			cfg := fresh(t, s)
			stored := recordsConfig(cfg, journal.ID{1}, mostRecord)
			change(&stored)
			sealed := stored.Sealed
			stored.Sealed = false // a stream can only become so
			created, err := js.CreateStream(t.Context(), stored)
			if err == nil && sealed {
				stored.Sealed = true
				_, err = js.UpdateStream(t.Context(), stored)
			}
			if err != nil {
				t.Fatal(err)
			}
			isRefused(t, cfg, want)
			if info, err := created.Info(t.Context()); err != nil || info.State.Msgs != 0 {
				t.Errorf("%d messages were written (%v)", info.State.Msgs, err)
			}
			if _, err := js.Stream(t.Context(), cfg.Name+"_blobs"); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("a second stream was made: %v", err)
			}
		})
	}
}

// TestServersThatAreRefused: what cannot be written to, or not safely, is refused in a
// sentence.
func TestServersThatAreRefused(t *testing.T) {
	s := natstest.Start(t, nil)
	unsynced := fresh(t, s)
	unsynced.Synced = false
	missing := fresh(t, s)
	missing.ReadOnly = true
	mixed := fresh(t, s)
	open(t, mixed)
	if err := admin(t, s).DeleteStream(t.Context(), mixed.Name); err != nil {
		t.Fatal(err)
	}
	elsewhere := config(t, "nats://nats.example.com/state?synced=true")
	elsewhere.Servers = []string{s.Host()} // which has no TLS
	for want, cfg := range map[string]Config{
		"sync_interval: always":      unsynced,
		"there is no journal":        missing,
		"belongs to another journal": mixed,
		"JetStream is off":           fresh(t, natstest.Start(t, func(o *natsd.Options) { o.JetStream = false })),
		"set max_payload":            fresh(t, natstest.Start(t, func(o *natsd.Options) { o.MaxPayload = 1000 })),
		"secure connection":          elsewhere,
	} {
		isRefused(t, cfg, want)
	}
}

// TestLimitsOfTheAccount: an account in which a journal cannot be made is told which limit to
// raise, and gets no stream.
func TestLimitsOfTheAccount(t *testing.T) {
	unlimited := natsd.JetStreamAccountLimits{MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1}
	for want, test := range map[string]struct {
		limit func(*natsd.JetStreamAccountLimits)
		spoil func(*Config)
	}{
		"may hold 1 streams and holds 0, and a journal needs two; raise max_streams": {limit: func(l *natsd.JetStreamAccountLimits) { l.MaxStreams = 1 }},
		"switch max_bytes_required off":                                              {limit: func(l *natsd.JetStreamAccountLimits) { l.MaxBytesRequired = true }},
		"correct replicas= in the journal URL":                                       {spoil: func(c *Config) { c.Replicas = 3 }},
	} {
		t.Run(want, func(t *testing.T) {
			s := natstest.Start(t, nil)
			cfg, limits := fresh(t, s), unlimited
			if test.limit != nil {
				test.limit(&limits)
			}
			if test.spoil != nil {
				test.spoil(&cfg)
			}
			if err := s.GlobalAccount().UpdateJetStreamLimits(map[string]natsd.JetStreamAccountLimits{"": limits}); err != nil {
				t.Fatal(err)
			}
			isRefused(t, cfg, want)
			if n := s.GlobalAccount().JetStreamUsage().Streams; n != 0 {
				t.Errorf("%d streams were made", n)
			}
		})
	}
}

// isRefused fails the test unless the journal is refused in one line with want in it.
func isRefused(t *testing.T, cfg Config, want string) {
	t.Helper()
	l, err := Open(t.Context(), cfg)
	if err == nil {
		_ = l.Close()
		t.Fatal("it is accepted")
	}
	if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v\nwant %q in it, in one line", err, want)
	}
}

// TestAccountIsFull: a record for which the account has no room is not acknowledged and not
// there, the error says what to raise, and all goes on once there is room.
func TestAccountIsFull(t *testing.T) {
	s := natstest.Start(t, nil)
	l := open(t, fresh(t, s))
	limits := natsd.JetStreamAccountLimits{MaxMemory: -1, MaxStore: 1 << 20, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1}
	if err := s.GlobalAccount().UpdateJetStreamLimits(map[string]natsd.JetStreamAccountLimits{"": limits}); err != nil {
		t.Fatal(err)
	}
	rec, slot := bytes.Repeat([]byte("x"), 100<<10), journal.Slot(1)
	var err error
	for ; slot < 20 && err == nil; slot++ {
		err = l.Append(t.Context(), slot, rec)
	}
	if err == nil || errors.Is(err, journal.ErrTaken) || !strings.Contains(err.Error(), "raise max_file in its JetStream limits") {
		t.Fatalf("Append to slot %d of an account of 1 MiB = %v", slot-1, err)
	}
	slot-- // the one that failed
	if recs, err := l.Read(t.Context(), 1, 100); err != nil || len(recs) != int(slot-1) {
		t.Fatalf("%d records are there (%v), %d were acknowledged", len(recs), err, slot-1)
	}
	if _, err := l.Trim(t.Context(), slot/2); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), slot, rec); err != nil {
		t.Errorf("Append after a trim = %v", err)
	}
}

// TestCredentialsAreRefused: a server that does not let the user in, or is not there, is
// named, with what to mend.
func TestCredentialsAreRefused(t *testing.T) {
	t.Setenv("NATS_PASSWORD", "hunter2")
	for said, want := range map[string]string{
		"Authorization Violation":        "correct the user in the journal URL",
		"User Authentication Expired":    "renew the file that creds= names",
		"User Authentication Revoked":    "renew the file that creds= names",
		"Account Authentication Expired": "renew the file that creds= names",
		"":                               "no server answers; check that they run",
	} {
		t.Run(said, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var refuser sync.WaitGroup
			t.Cleanup(func() { _ = listener.Close(); refuser.Wait() })
			refuser.Go(func() {
				for {
					client, err := listener.Accept()
					if err != nil {
						return
					}
					fmt.Fprintf(client, "INFO {\"max_payload\":1048576,\"headers\":true,\"auth_required\":true}\r\n")
					_, _ = client.Read(make([]byte, 1<<12)) // CONNECT
					fmt.Fprintf(client, "-ERR '%s'\r\n", said)
					_ = client.Close()
				}
			})
			if said == "" {
				_ = listener.Close()
			}
			isRefused(t, config(t, "nats://xb@"+listener.Addr().String()+"/state?synced=true"), want)
		})
	}
}

// TestDefaultPayload: on a server with NATS' own limit, the longest record is what
// fits.
func TestDefaultPayload(t *testing.T) {
	l := open(t, fresh(t, natstest.Start(t, func(o *natsd.Options) { o.MaxPayload = 0 })))
	most := l.Info().MaxRecord
	if most != natsd.MAX_PAYLOAD_SIZE-overhead {
		t.Errorf("MaxRecord = %d", most)
	}
	if err := l.Append(t.Context(), 1, make([]byte, most)); err != nil {
		t.Error(err)
	}
	if err := l.Append(t.Context(), 2, make([]byte, most+1)); !errors.Is(err, journal.ErrTooLarge) {
		t.Errorf("Append of a longer one = %v, want %v", err, journal.ErrTooLarge)
	}
}

// TestRights: the rights that README.md lists are enough for what it says, and whatever
// else a party tries ends with the subject that it lacks.
func TestRights(t *testing.T) {
	api := func(what, name string) []string {
		return []string{"$JS.API.STREAM." + what + "." + name, "$JS.API.STREAM." + what + "." + name + "_blobs"}
	}
	read := append(api("INFO", "rights"), api("MSG.GET", "rights")...)
	write := append([]string{"rights.record.*", "rights.blob.>", "rights.chunk.>", "$JS.API.STREAM.PURGE.rights_blobs"}, read...)
	own := append(append([]string{"$JS.API.STREAM.PURGE.rights"}, api("CREATE", "rights")...), write...)
	user := func(name string, publish ...string) *natsd.User {
		return &natsd.User{Username: name, Password: "secret", Permissions: &natsd.Permissions{
			Publish:   &natsd.SubjectPermission{Allow: publish},
			Subscribe: &natsd.SubjectPermission{Allow: []string{"_INBOX_" + name + ".>"}},
		}}
	}
	s := natstest.Start(t, func(o *natsd.Options) {
		o.Users = []*natsd.User{user("owner", own...), user("half", append([]string{"$JS.API.STREAM.CREATE.rights"}, write...)...), user("writer", write...), user("reader", read...)}
	})
	t.Setenv("NATS_PASSWORD", "secret")
	cfg := func(name, inbox string) Config {
		return config(t, fmt.Sprintf("nats://%s@%s/rights?synced=true&inbox=%s", name, s.Host(), inbox))
	}
	if _, err := Open(t.Context(), cfg("writer", "_INBOX_writer")); err == nil || !strings.Contains(err.Error(), "may not publish to $JS.API.STREAM.CREATE.rights;") {
		t.Errorf("a writer creates a journal: %v", err)
	}
	if _, err := Open(t.Context(), cfg("half", "_INBOX_half")); err == nil || !strings.Contains(err.Error(), "may not publish to $JS.API.STREAM.CREATE.rights_blobs;") {
		t.Errorf("a user that may make one of the streams makes a journal: %v", err)
	}
	if n := s.GlobalAccount().JetStreamUsage().Streams; n != 0 {
		t.Errorf("%d streams were made by users that may not make both", n)
	}
	owner := open(t, cfg("owner", "_INBOX_owner"))
	writer := open(t, cfg("writer", "_INBOX_writer"))
	if err := writer.Append(t.Context(), 1, []byte("x")); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := writer.PutBlob(t.Context(), "a/b", []byte("x")); err != nil {
			t.Error(err)
		}
	}
	if err := writer.DeleteBlob(t.Context(), "a/b"); err != nil {
		t.Error(err)
	}
	if _, err := writer.Trim(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "may not publish to $JS.API.STREAM.PURGE.rights;") {
		t.Errorf("a writer trims: %v", err)
	}
	reader := open(t, cfg("reader", "_INBOX_reader"))
	if recs, err := reader.Read(t.Context(), 1, 10); err != nil || len(recs) != 1 {
		t.Error(recs, err)
	}
	if err := reader.Append(t.Context(), 2, []byte("x")); err == nil || !strings.Contains(err.Error(), "may not publish to rights.record.") {
		t.Errorf("a reader appends: %v", err)
	}
	if n, err := owner.Trim(t.Context(), 2); err != nil || n != 1 {
		t.Error(n, err)
	}
	if _, err := Open(t.Context(), cfg("reader", "_INBOX_other")); err == nil || !strings.Contains(err.Error(), "may not subscribe to _INBOX_other.") {
		t.Errorf("a reader takes another's answers: %v", err)
	}
	t.Setenv("NATS_PASSWORD", "wrong-secret")
	if _, err := Open(t.Context(), cfg("reader", "_INBOX_reader")); !errors.Is(err, nats.ErrAuthorization) || strings.Contains(err.Error(), "wrong-secret") {
		t.Errorf("a wrong password: %v", err)
	}
}

// TestNewLeader: a leader that has just been elected is asked until it has heard from
// the others.
func TestNewLeader(t *testing.T) {
	plain := natstest.Start(t, func(o *natsd.Options) { o.JetStream = false })
	conn, err := connect(config(t, plain.ClientURL()+"/new?synced=true"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	asked := 0
	_, err = conn.conn.Subscribe("$JS.API.STREAM.INFO.new", func(msg *nats.Msg) {
		asked++
		answer := infoAnswer{StreamInfo: jetstream.StreamInfo{
			Config:  jetstream.StreamConfig{Replicas: 3},
			Cluster: &jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{{Active: time.Hour}, {}}},
			State:   jetstream.StreamState{LastSeq: uint64(asked)},
		}}
		if asked == 5 {
			answer.Cluster.Replicas[0].Active = time.Millisecond
		}
		data, _ := json.Marshal(answer)
		_ = msg.Respond(data)
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream{name: "new", server: conn}.look(t.Context(), infoRequest{})
	if err != nil || answer.State.LastSeq != 5 {
		t.Errorf("look = state %+v, %v, want what the fifth answer says", answer.State, err)
	}
}
