package awspolicy_test

import (
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/awspolicy"
)

// TestSenderOfOptInRegions: SNS delivers by another principal to and from a region that
// accounts must opt in to.
func TestSenderOfOptInRegions(t *testing.T) {
	for _, test := range []struct{ from, to, want string }{
		{"eu-west-1", "eu-west-1", "sns.amazonaws.com"},
		{"eu-west-1", "us-east-1", "sns.amazonaws.com"},
		{"eu-south-1", "eu-south-1", "sns.amazonaws.com"},
		{"eu-south-1", "eu-west-1", "sns.eu-south-1.amazonaws.com"},
		{"eu-west-1", "af-south-1", "sns.af-south-1.amazonaws.com"},
		{"eu-south-1", "af-south-1", "does not deliver from eu-south-1 to af-south-1"},
	} {
		d, err := awspolicy.QueuePolicy(awspolicy.Notifications{
			Topic: "arn:aws:sns:" + test.from + ":111111111111:t",
			Queue: "arn:aws:sqs:" + test.to + ":222222222222:q",
		})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = strings.Join(d.Statement[0].Principal["Service"], " ")
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("from %s to %s: %s, want %s", test.from, test.to, got, test.want)
		}
	}
}

// TestServersThatMakeQueues may make, subscribe and remove those of their name, and no
// others.
func TestServersThatMakeQueues(t *testing.T) {
	n := awspolicy.Notifications{Topic: topic, Queue: "arn:aws:sqs:us-east-1:222222222222:xb-*"}
	own, other := "arn:aws:sqs:us-east-1:222222222222:xb-0123", "arn:aws:sqs:us-east-1:222222222222:orders"
	subscribe := func(protocol, endpoint string) request {
		return request{Action: "sns:Subscribe", Resource: topic, Context: pairs([]string{"sns:Protocol", protocol, "sns:Endpoint", endpoint})}
	}
	for _, test := range []struct {
		r    request
		want bool
	}{
		{request{Action: "sqs:CreateQueue", Resource: own}, true},
		{request{Action: "sqs:DeleteQueue", Resource: own}, true},
		{request{Action: "sqs:ReceiveMessage", Resource: own}, true},
		{subscribe("sqs", own), true},
		{request{Action: "sqs:CreateQueue", Resource: other}, false},
		{request{Action: "sqs:DeleteQueue", Resource: other}, false},
		{subscribe("sqs", other), false},
		{subscribe("https", "https://example.com"), false},
	} {
		if got := verdict(test.r, awspolicy.Identity(where, awspolicy.Writer, n)); got != test.want {
			t.Errorf("%s: allowed %v, want %v", test.r.text(), got, test.want)
		}
	}
}
