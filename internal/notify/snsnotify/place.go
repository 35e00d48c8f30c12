package snsnotify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// place is a queue, with its subscription to the topic.
type place struct {
	url, arn     string
	subscription string // its ARN; empty: not subscribed by this process
}

// open finds or creates the queue, and subscribes it. What of the place exists is
// returned also beside an error.
func (s *Source) open(ctx context.Context) (place, error) {
	if s.cfg.Queue != "" {
		q, err := s.find(ctx)
		if err == nil && s.cfg.Topic != "" {
			// The administrator who made the queue may have subscribed it, without leaving that to
			// this server: it goes on, and says what it lacks.
			if err := s.subscribe(ctx, &q); err != nil {
				s.cfg.Logger.Info("the queue was not subscribed by this server; that is right if its owner did it", "queue", q.arn, "error", err)
			}
			q.subscription = ""
			s.lookAtPolicy(ctx, q)
		}
		return q, err
	}
	q, err := s.create(ctx)
	if err == nil {
		err = s.subscribe(ctx, &q)
	}
	return q, err
}

func (s *Source) find(ctx context.Context) (place, error) {
	name, account := part(s.cfg.Queue, 5), part(s.cfg.Queue, 4)
	out, err := s.queue.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name, QueueOwnerAWSAccountId: &account})
	if err != nil {
		return place{}, explain(err, "sqs:GetQueueUrl", s.cfg.Queue)
	}
	return place{url: *out.QueueUrl, arn: s.cfg.Queue}, nil
}

// lookAtPolicy says what the policy of a queue lacks that was given, if these credentials
// may read it. A topic that may not send to a queue says so to nobody.
func (s *Source) lookAtPolicy(ctx context.Context, q place) {
	name := sqstypes.QueueAttributeNamePolicy
	out, err := s.queue.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []sqstypes.QueueAttributeName{name}})
	if err != nil || strings.Contains(out.Attributes[string(name)], s.cfg.Topic) {
		return
	}
	s.cfg.Logger.Warn("the queue's policy does not name the topic; unless it allows the topic in another way, no notification comes", "queue", q.arn, "needs", queuePolicy(q.arn, s.cfg.Topic))
}

// create makes a queue. Its name begins with the journal's, so that the owner of an
// account can find and remove those of servers that were killed.
func (s *Source) create(ctx context.Context) (place, error) {
	name := fmt.Sprintf("xb-%.12s-%s-%s", s.cfg.Journal, time.Now().UTC().Format("20060102t150405"), s.self)
	out, err := s.queue.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{
		"MessageRetentionPeriod":        strconv.Itoa(retention),
		"ReceiveMessageWaitTimeSeconds": strconv.Itoa(longPoll),
		"MaximumMessageSize":            strconv.Itoa(maxMessage),
	}})
	if err != nil {
		return place{}, explain(err, "sqs:CreateQueue", "the queue "+name+" in "+s.cfg.queueRegion())
	}
	q := place{url: *out.QueueUrl}
	attributes, err := s.queue.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameQueueArn}})
	if err != nil {
		return q, explain(err, "sqs:GetQueueAttributes", name)
	}
	q.arn = attributes.Attributes["QueueArn"]
	_, err = s.queue.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{QueueUrl: &q.url, Attributes: map[string]string{
		"Policy": queuePolicy(q.arn, s.cfg.Topic),
	}})
	if err != nil {
		return q, fmt.Errorf("%w; or give the queue the policy %s", explain(err, "sqs:SetQueueAttributes", q.arn), queuePolicy(q.arn, s.cfg.Topic))
	}
	return q, nil
}

// subscribe subscribes the queue, without its own server's messages. What has no writer
// is an event of the bucket.
func (s *Source) subscribe(ctx context.Context, q *place) error {
	filter, err := json.Marshal(map[string]any{"writer": []any{
		map[string]any{"exists": false}, map[string]any{"anything-but": []string{s.self}},
	}})
	if err != nil {
		return fmt.Errorf("encode the filter of a subscription: %w", err)
	}
	protocol := "sqs"
	out, err := s.topic.Subscribe(ctx, &sns.SubscribeInput{
		TopicArn: &s.cfg.Topic, Protocol: &protocol, Endpoint: &q.arn, ReturnSubscriptionArn: true,
		Attributes: map[string]string{"RawMessageDelivery": "true", "FilterPolicy": string(filter)},
	})
	if err != nil {
		err = explain(err, "sns:Subscribe", s.cfg.Topic)
		if owner := part(q.arn, 4); owner != part(s.cfg.Topic, 4) && isDenied(err) {
			err = fmt.Errorf("%w; the topic belongs to another account, and its policy needs the statement %s", err, topicStatement(s.cfg.Topic, owner))
		}
		return err
	}
	if out.SubscriptionArn != nil {
		q.subscription = *out.SubscriptionArn
	}
	return nil
}

// leave removes the queue that open created, and its subscription, as far as it can.
func (s *Source) leave(ctx context.Context, q place) {
	if s.cfg.Queue != "" || q.url == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
	defer cancel()
	if q.subscription != "" {
		if _, err := s.topic.Unsubscribe(ctx, &sns.UnsubscribeInput{SubscriptionArn: &q.subscription}); err != nil {
			s.cfg.Logger.Warn("a subscription stays behind; remove it", "subscription", q.subscription, "error", explain(err, "sns:Unsubscribe", q.subscription))
		}
	}
	if _, err := s.queue.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &q.url}); err != nil && !isGone(err) {
		s.cfg.Logger.Warn("a queue stays behind; remove it", "queue", q.arn, "error", explain(err, "sqs:DeleteQueue", q.arn))
	}
}

type statement struct {
	Effect    string
	Principal map[string][]string
	Action    []string
	Resource  string
	Condition map[string]map[string]string `json:",omitempty"`
}

// queuePolicy lets a topic, and nobody else, send to a queue.
func queuePolicy(queue, topic string) string {
	senders := []string{"sns.amazonaws.com"}
	if region := part(topic, 3); !slices.Contains(defaultRegions, region) {
		senders = append(senders, "sns."+region+".amazonaws.com")
	}
	return encode(map[string]any{"Version": "2012-10-17", "Statement": []statement{{
		Effect: "Allow", Principal: map[string][]string{"Service": senders}, Action: []string{"sqs:SendMessage"}, Resource: queue,
		Condition: map[string]map[string]string{"ArnEquals": {"aws:SourceArn": topic}},
	}}})
}

// topicStatement lets another account subscribe and publish.
func topicStatement(topic, account string) string {
	return encode(statement{
		Effect: "Allow", Principal: map[string][]string{"AWS": {"arn:" + part(topic, 1) + ":iam::" + account + ":root"}},
		Action: []string{"sns:Subscribe", "sns:Publish"}, Resource: topic,
	})
}

func encode(v any) string {
	var out strings.Builder
	_ = json.NewEncoder(&out).Encode(v) // strings and lists: never fails
	return strings.TrimSpace(out.String())
}

// defaultRegions are those that every account has. AWS has added only opt-in regions
// since, whose topics act under a name of their own.
var defaultRegions = []string{
	"us-east-1", "us-east-2", "us-west-1", "us-west-2", "ca-central-1", "sa-east-1",
	"eu-central-1", "eu-west-1", "eu-west-2", "eu-west-3", "eu-north-1",
	"ap-south-1", "ap-southeast-1", "ap-southeast-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3",
	"us-gov-east-1", "us-gov-west-1", "cn-north-1", "cn-northwest-1",
}
