package awspolicy

import (
	"fmt"
	"slices"
	"strings"
)

// Notifications are where a party tells others of new records, and is told. Its zero
// value is none.
type Notifications struct {
	Topic string // the ARN of the SNS topic that writers publish to; empty: none
	// Queue is the ARN of the SQS queue that the party's server reads, or the
	// beginning of those of queues that servers make for themselves, and a *. Empty:
	// none.
	Queue string
}

// made says whether servers make the queue themselves.
func (n Notifications) made() bool { return strings.HasSuffix(n.Queue, "*") }

// allow returns what a party needs for notifications, in its own policy.
func (n Notifications) allow(role Role) (all []Statement) {
	if n.Topic != "" && role >= Writer {
		all = append(all, Statement{Sid: "Publish", Effect: "Allow", Action: []string{"sns:Publish"}, Resource: []string{n.Topic}})
	}
	if n.Queue == "" {
		return all
	}
	receive := []string{"sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"}
	if n.made() {
		receive = append(receive, "sqs:CreateQueue", "sqs:DeleteQueue", "sqs:GetQueueAttributes", "sqs:SetQueueAttributes")
		slices.Sort(receive)
	}
	all = append(all, Statement{Sid: "Receive", Effect: "Allow", Action: receive, Resource: []string{n.Queue}})
	if n.Topic != "" {
		all = append(all,
			Statement{Sid: "Subscribe", Effect: "Allow", Action: []string{"sns:Subscribe"}, Resource: []string{n.Topic}, Condition: n.toQueue()},
			Statement{Sid: "Unsubscribe", Effect: "Allow", Action: []string{"sns:Unsubscribe"}, Resource: []string{n.Topic}},
		)
	}
	return all
}

// toQueue is the condition that a subscription leads to the queue.
func (n Notifications) toQueue() map[string]map[string][]string {
	return map[string]map[string][]string{
		"StringEquals": {"sns:Protocol": {"sqs"}},
		"ArnLike":      {"sns:Endpoint": {n.Queue}},
	}
}

// TopicPolicy is the policy of the topic: it lets in a party of another account, which
// publishes if its role is Writer or Owner, and subscribes the queue.
func TopicPolicy(n Notifications, p Party) Document {
	d := Document{Version: languageVersion, Statement: []Statement{}}
	who := Principals{"AWS": {p.Principal}}
	if p.Role >= Writer {
		d.Statement = append(d.Statement, Statement{Sid: "Publish", Effect: "Allow", Principal: who, Action: []string{"sns:Publish"}, Resource: []string{n.Topic}})
	}
	if n.Queue != "" {
		d.Statement = append(d.Statement, Statement{Sid: "Subscribe", Effect: "Allow", Principal: who, Action: []string{"sns:Subscribe"}, Resource: []string{n.Topic}, Condition: n.toQueue()})
	}
	return d
}

// QueuePolicy is the policy of the queue: SNS may send to it what comes from the topic,
// and nothing else. The error says that SNS does not deliver between two regions.
func QueuePolicy(n Notifications) (Document, error) {
	service, err := sender(region(n.Topic), region(n.Queue))
	if err != nil {
		return Document{}, err
	}
	return Document{languageVersion, []Statement{{
		Sid: "Deliver", Effect: "Allow", Principal: Principals{"Service": {service}},
		Action: []string{"sqs:SendMessage"}, Resource: []string{n.Queue},
		Condition: map[string]map[string][]string{"ArnEquals": {"aws:SourceArn": {n.Topic}}},
	}}}, nil
}

// enabled are the regions that every account has from the start. SNS calls the others
// opt-in regions (all that opened after 2019-03-20) and has a principal of its own in
// each. AWS's page "Sending Amazon SNS messages to an Amazon SQS queue in a different
// Region" says which principal delivers.
var enabled = []string{
	"ap-northeast-1", "ap-northeast-2", "ap-south-1", "ap-southeast-1", "ap-southeast-2", "ca-central-1", "eu-central-1", "eu-north-1",
	"eu-west-1", "eu-west-2", "eu-west-3", "sa-east-1", "us-east-1", "us-east-2", "us-west-1", "us-west-2",
	"cn-north-1", "cn-northwest-1", "us-gov-east-1", "us-gov-west-1",
}

// sender is the principal by which SNS delivers from one region to another.
func sender(from, to string) (service string, err error) {
	switch special := func(region string) bool { return !slices.Contains(enabled, region) }; {
	case from == to || !special(from) && !special(to):
		return "sns.amazonaws.com", nil
	case special(from) && special(to):
		return "", fmt.Errorf("SNS does not deliver from %s to %s, which are both opt-in regions; use a topic in a region that every account has, such as eu-west-1", from, to)
	case special(from):
		return "sns." + from + ".amazonaws.com", nil
	default:
		return "sns." + to + ".amazonaws.com", nil
	}
}
