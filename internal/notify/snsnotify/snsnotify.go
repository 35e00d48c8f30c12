// Package snsnotify brings hints to a replica by an SNS topic and an SQS queue, and
// publishes those of the replica. It never reads a record, and never decides what a
// hint is worth.
package snsnotify

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/notify"
)

const (
	longPoll  = 20 // seconds, the longest
	retention = 60 // seconds, the shortest: a hint is worth nothing after a poll
	// leaving is how long removing the queue may take when Run ends.
	leaving = 5 * time.Second
	// publishing is how long one publish may take.
	publishing = 10 * time.Second
)

// Source is a server's place at a topic. It implements notify.Source.
type Source struct {
	cfg   Config
	self  string // the name that this server gives itself in messages
	topic *sns.Client
	queue *sqs.Client

	*notify.Outbox // what is to be published
}

var _ notify.Source = (*Source)(nil)

// New returns a source. It sends nothing until Run runs. The error is one sentence that
// names what is wrong and what to do.
func New(ctx context.Context, cfg Config) (*Source, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Topic == "" && cfg.Queue == "" {
		return nil, errors.New("notifications need a topic or a queue")
	}
	s := &Source{cfg: cfg, self: newName(), Outbox: notify.NewOutbox()}
	if cfg.Queue != "" {
		s.self = "queue-" + part(cfg.Queue, 4) + "-" + part(cfg.Queue, 5) // its filter outlives this process
	}
	sdk, err := sdkConfig(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Topic != "" {
		s.topic = newTopic(sdk, part(cfg.Topic, 3), cfg.Endpoint)
	}
	s.queue = newQueue(sdk, cfg.queueRegion(), cfg.Endpoint)
	return s, nil
}

func newName() string {
	var b [8]byte
	rand.Read(b[:]) // never fails, by its contract
	return hex.EncodeToString(b[:])
}

func (c *Config) queueRegion() string {
	switch {
	case c.Queue != "":
		return part(c.Queue, 3)
	case c.Region != "":
		return c.Region
	}
	return part(c.Topic, 3)
}

// Tell implements notify.Source.
func (s *Source) Tell(slot journal.Slot) {
	if s.topic != nil {
		s.Outbox.Tell(slot)
	}
}

// Run implements notify.Source.
func (s *Source) Run(ctx context.Context, to *notify.Woken) {
	var both sync.WaitGroup
	both.Go(func() { s.publish(ctx) })
	both.Go(func() { s.receive(ctx, to) })
	both.Wait()
}

// publish sends what Tell was told, one message at a time. A message that fails is not
// repeated: by then the others have polled, or a newer one tells them as much.
func (s *Source) publish(ctx context.Context) {
	trouble := notify.Trouble{Log: s.cfg.Logger, Means: "other servers are not notified, and must poll"}
	for {
		slot, err := s.Take(ctx)
		if err != nil {
			return
		}
		trouble.Note(ctx, s.publishSlot(ctx, slot))
		if trouble.Pause(ctx) != nil {
			return
		}
	}
}

func (s *Source) publishSlot(ctx context.Context, slot journal.Slot) error {
	ctx, cancel := context.WithTimeout(ctx, publishing)
	defer cancel()
	body, err := json.Marshal(hint{Journal: s.cfg.Journal.String(), Slot: uint64(slot), Writer: s.self})
	if err != nil {
		return fmt.Errorf("encode a notification: %w", err)
	}
	_, err = s.topic.Publish(ctx, &sns.PublishInput{
		TopicArn: &s.cfg.Topic, Message: aws.String(string(body)),
		MessageAttributes: map[string]snstypes.MessageAttributeValue{
			"writer": {DataType: aws.String("String"), StringValue: &s.self},
		},
	})
	return explain(err, "sns:Publish", s.cfg.Topic)
}

// receive receives until ctx ends. A queue that is gone is made again.
func (s *Source) receive(ctx context.Context, to *notify.Woken) {
	trouble := notify.Trouble{Log: s.cfg.Logger, Means: "notifications do not come; polling"}
	for ctx.Err() == nil {
		q, err := s.open(ctx)
		if err == nil {
			err = s.drain(ctx, q, func() { trouble.Note(ctx, nil); to.Up() }, to.Heard)
		}
		s.leave(ctx, q)
		if ctx.Err() != nil {
			return
		}
		to.Down()
		trouble.Note(ctx, err)
		if trouble.Pause(ctx) != nil {
			return
		}
	}
}

// drain receives from a queue until something fails.
func (s *Source) drain(ctx context.Context, q place, up func(), heard func(journal.Slot)) error {
	for wait := int32(0); ; wait = longPoll { // the first answer is not waited for: it shows that all is well
		out, err := s.queue.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &q.url, MaxNumberOfMessages: 10, WaitTimeSeconds: wait,
		})
		if err != nil {
			return explain(err, "sqs:ReceiveMessage", q.arn)
		}
		up()
		var newest journal.Slot
		var done []sqstypes.DeleteMessageBatchRequestEntry
		for i, m := range out.Messages[:min(len(out.Messages), 10)] {
			newest = max(newest, s.cfg.slot(aws.ToString(m.Body), s.self))
			done = append(done, sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
		}
		if newest > 0 {
			heard(newest)
		}
		if len(done) == 0 {
			continue
		}
		// Messages that stay because this fails come again, and change nothing.
		if _, err := s.queue.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &q.url, Entries: done}); err != nil {
			return explain(err, "sqs:DeleteMessage", q.arn)
		}
	}
}
