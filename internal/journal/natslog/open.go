package natslog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/xbernetes/xbernetes/internal/journal"
)

var errNotSynced = errors.New("JetStream acknowledges a write before it is on the disk unless every server's configuration has sync_interval: always in its jetstream block, and does not tell clients; set it on every server, then say so with synced=true in the journal URL")

// Open opens the journal that cfg names, and creates it if it is not there, unless cfg
// says ReadOnly. It refuses streams that may lose, change or hide records.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	at := fmt.Sprintf("journal %s at %s", cfg.Name, strings.Join(cfg.Servers, ","))
	if !cfg.Synced && !cfg.ReadOnly {
		return nil, fmt.Errorf("open %s: %w", at, errNotSynced)
	}
	server, err := connect(cfg)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", at, explainConnect(err))
	}
	l := &Log{server: server, logger: cfg.Logger}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	if err := l.prepare(ctx, cfg); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("open %s: %w", at, err)
	}
	return l, nil
}

// Keys and values of the streams' metadata.
const (
	metaFormat  = "xbernetes-format"
	metaJournal = "xbernetes-journal"
)

// prepare opens both streams. The first one is the journal: who creates it, draws its id.
func (l *Log) prepare(ctx context.Context, cfg Config) error {
	most := min(mostRecord, int(l.server.conn.MaxPayload())-overhead)
	if most < leastRecord {
		return fmt.Errorf("the server takes messages of %d bytes at most; set max_payload to %d or more", l.server.conn.MaxPayload(), mostRecord+overhead)
	}
	var drawn journal.ID
	rand.Read(drawn[:]) // never fails: crypto/rand ends the process instead
	recordsStream, blobsStream := stream{l.server, cfg.Name}, stream{l.server, cfg.Name + "_blobs"}
	_, err := recordsStream.look(ctx, infoRequest{})
	if errors.Is(err, errNoStream) {
		err = l.server.checkAccount(ctx, cfg, recordsStream, blobsStream)
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", recordsStream.name, err)
	}
	found, err := recordsStream.open(ctx, recordsConfig(cfg, drawn, most), drawn)
	if err != nil {
		return err
	}
	id := found.id
	chunks, err := blobsStream.open(ctx, blobsConfig(cfg, id, most), id)
	if err != nil {
		return err
	}
	if chunks.id != id {
		return fmt.Errorf("stream %s belongs to another journal, of id %s; delete it if that is gone", blobsStream.name, chunks.id)
	}
	most = min(most, found.most, chunks.most)
	l.records = records{stream: recordsStream, id: id, subject: recordsSubject(cfg.Name, id), most: most}
	l.blobs = blobs{stream: blobsStream, id: id, journal: cfg.Name, most: most}
	l.info = journal.Info{ID: id, MaxRecord: most, Exclusive: cfg.Exclusive, Depth: depth}
	return nil
}

// recordsSubject is the subject of a journal's records. It has the journal's id, so
// that nothing that was meant for a journal reaches another of its name, made later.
func recordsSubject(name string, id journal.ID) string { return name + ".record." + id.String() }

func recordsConfig(cfg Config, id journal.ID, most int) jetstream.StreamConfig {
	c := commonConfig(cfg, id, most)
	c.Name, c.Subjects = cfg.Name, []string{recordsSubject(cfg.Name, id)}
	c.MaxMsgsPerSubject = -1
	return c
}

func blobsConfig(cfg Config, id journal.ID, most int) jetstream.StreamConfig {
	c := commonConfig(cfg, id, most)
	c.Name, c.Subjects = cfg.Name+"_blobs", []string{cfg.Name + ".blob.>", cfg.Name + ".chunk.>"}
	c.MaxMsgsPerSubject = 1 // a later head replaces the earlier one
	return c
}

func commonConfig(cfg Config, id journal.ID, most int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Description:  "a journal of xbernetes",
		Storage:      jetstream.FileStorage,
		Retention:    jetstream.LimitsPolicy,
		Discard:      jetstream.DiscardNew,
		MaxMsgs:      -1,
		MaxBytes:     -1,
		MaxMsgSize:   int32(most + overhead),
		MaxConsumers: -1,
		Replicas:     cfg.Replicas,
		DenyDelete:   true,
		Metadata:     map[string]string{metaFormat: strconv.Itoa(journal.FormatVersion), metaJournal: id.String()},
	}
}

// opened is what an existing stream says of itself.
type opened struct {
	id   journal.ID
	most int // the longest payload of a message, in bytes
}

// open looks at the stream and creates it if it is not there. If several servers do so
// at once, one stream stays, and all see that one.
func (s stream) open(ctx context.Context, want jetstream.StreamConfig, id journal.ID) (opened, error) {
	answer, err := s.look(ctx, infoRequest{})
	for n := 1; errors.Is(err, errNoStream) && n <= attempts; n++ {
		if s.server.readOnly {
			return opened{}, fmt.Errorf("stream %s: there is no journal: %w", s.name, err)
		}
		if err := s.create(ctx, want); err != nil {
			return opened{}, fmt.Errorf("create stream %s: %w", s.name, err)
		}
		if answer, err = s.look(ctx, infoRequest{}); err != nil && between.Pause(ctx, n) != nil {
			break
		}
	}
	if err != nil {
		return opened{}, fmt.Errorf("stream %s: %w", s.name, err)
	}
	found, err := readMeta(answer.Config.Metadata)
	if err == nil {
		want.Subjects = slices.Clone(want.Subjects)
		for i, subject := range want.Subjects { // of the id that the stream has
			want.Subjects[i] = strings.Replace(subject, id.String(), found.String(), 1)
		}
		err = checkConfig(answer.Config, want)
	}
	if err != nil {
		return opened{}, fmt.Errorf("stream %s: %w", s.name, err)
	}
	return opened{found, int(answer.Config.MaxMsgSize) - overhead}, nil
}

func readMeta(meta map[string]string) (id journal.ID, err error) {
	stored, isJournal := meta[metaFormat]
	if !isJournal {
		return id, errors.New("it is there, and is no journal of xbernetes; take another name, or delete the stream")
	}
	format, err := strconv.Atoi(stored)
	if err != nil {
		return id, fmt.Errorf("its format is %q: %w", stored, journal.ErrCorrupt)
	}
	if err := journal.CheckFormat(format); err != nil {
		return id, err
	}
	raw, err := hex.DecodeString(meta[metaJournal])
	if err != nil || len(raw) != len(id) {
		return id, fmt.Errorf("its id is %q: %w", meta[metaJournal], journal.ErrCorrupt)
	}
	return journal.ID(raw), nil
}

// checkConfig refuses a stream that may lose, change or hide what it acknowledged.
func checkConfig(got, want jetstream.StreamConfig) error {
	for _, setting := range []struct {
		wrong bool
		is    string // what the stream's configuration has, and what follows from it
	}{
		{got.Storage != jetstream.FileStorage, "storage: memory: it is lost when the servers stop"},
		{got.PersistMode != jetstream.DefaultPersistMode, "persist_mode: async: it loses acknowledged writes when a server crashes"},
		{got.NoAck, "no_ack: it acknowledges nothing"},
		{got.Sealed, "sealed: it takes no writes"},
		{got.Retention != jetstream.LimitsPolicy, "a retention other than limits: it deletes what consumers have read"},
		{got.Discard != jetstream.DiscardNew, "discard: old: it deletes the oldest records when it is full"},
		{got.MaxAge != 0, "max_age: it deletes records that are older"},
		{got.MaxMsgsPerSubject != want.MaxMsgsPerSubject, fmt.Sprintf("max_msgs_per_subject: %d, not %d: it keeps more or less than it should", got.MaxMsgsPerSubject, want.MaxMsgsPerSubject)},
		{got.DiscardNewPerSubject, "discard_new_per_subject: nothing can be replaced in it"},
		{!slices.Equal(got.Subjects, want.Subjects), fmt.Sprintf("the subjects %v, not %v: others' messages would take slots", got.Subjects, want.Subjects)},
		{got.Mirror != nil || len(got.Sources) > 0, "a mirror or sources: others' messages would take slots"},
		{got.SubjectTransform != nil, "a subject_transform: it changes where messages belong"},
		{got.AllowDirect || got.MirrorDirect, "allow_direct: replicas that lag may answer"},
		{got.AllowRollup, "allow_rollup_hdrs: whoever may write could delete all records"},
		{got.AllowMsgTTL || got.SubjectDeleteMarkerTTL != 0, "allow_msg_ttl: records could end by themselves"},
		{got.AllowMsgCounter || got.AllowMsgSchedules || got.AllowAtomicPublish || got.AllowBatchPublish, "counters, schedules or batches: messages would be stored otherwise than one by one"},
		{!got.DenyDelete, "deny_delete: false: records could be deleted from its middle"},
		{got.DenyPurge, "deny_purge: its start could never be deleted"},
		{got.FirstSeq > 1, "a first_seq: the first slot would not be 1"},
		{got.MaxMsgSize < leastRecord+overhead || got.MaxMsgSize > mostRecord+overhead, fmt.Sprintf("max_msg_size: %d; want from %d to %d", got.MaxMsgSize, leastRecord+overhead, mostRecord+overhead)},
	} {
		if setting.wrong {
			return fmt.Errorf("it cannot hold a journal, because it has %s", setting.is)
		}
	}
	return nil
}
