package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xbernetes/xbernetes/internal/awspolicy"
)

const awsPolicy = "aws policy --journal s3://shared/prod?region=eu-west-1"

func TestAWSPolicy(t *testing.T) {
	topic, queue := "arn:aws:sns:eu-west-1:111111111111:xb", "arn:aws:sqs:us-east-1:222222222222:xb"
	var got awspolicy.Set
	out := says(t, strings.Fields(awsPolicy+" --role writer --account 222222222222 --topic "+topic+" --queue "+queue)...)
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	want, err := awspolicy.For(
		awspolicy.Journal{Partition: "aws", Bucket: "shared", Prefix: "prod"},
		awspolicy.Party{Role: awspolicy.Writer, Principal: "arn:aws:iam::222222222222:root"},
		awspolicy.Notifications{Topic: topic, Queue: queue},
	)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var one awspolicy.Document
	if err := json.Unmarshal([]byte(says(t, strings.Fields(awsPolicy+" --role writer --only identity")...)), &one); err != nil || len(one.Statement) == 0 {
		t.Errorf("--only identity prints %v (%v)", one, err)
	}
	if out := says(t, strings.Fields("aws policy --journal s3://shared/prod?region=cn-north-1 --role reader --only identity")...); !strings.Contains(out, `"arn:aws-cn:s3:::shared/prod/journal/*"`) {
		t.Errorf("a bucket in China has the ARNs of %s", out)
	}
}

func TestAWSPolicyRefuses(t *testing.T) {
	for args, want := range map[string]string{
		awsPolicy + " --role admin":                                                                       `the role is "admin"; want reader, writer or owner`,
		awsPolicy + " --role writer --account 12":                                                         `account "12" is not valid; an account has 12 digits`,
		awsPolicy + " --role writer --principal tenant":                                                   `principal "tenant" is not valid; want the ARN`,
		awsPolicy + " --role writer --principal arn:aws:iam::*:r":                                         "is not valid",
		awsPolicy + " --role writer --account 222222222222 --principal arn:aws:iam::111111111111:role/xb": "is not of the account 222222222222",
		awsPolicy + " --role writer --topic xb":                                                           `topic "xb" is not valid; want an ARN`,
		awsPolicy + " --role writer --topic arn:aws:sns:eu-west-1:111111111111:xb.fifo":                   "use a standard one",
		awsPolicy + " --role writer --queue https://sqs/1/xb":                                             `queue "https://sqs/1/xb" is not valid`,
		awsPolicy + " --role writer --only topic":                                                         "give --topic, and --account or --principal",
		awsPolicy + " --role writer --only queue":                                                         "give --topic and --queue",
		awsPolicy + " --role writer --only role":                                                          `no policy called "role"`,
		"aws policy --journal file:///tmp/x --role writer":                                                "for which AWS has no policies",
		"aws policy --journal s3://shared/a*b --role writer":                                              "is not valid",
	} {
		if got := says(t, strings.Fields(args)...); !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("xb %s says %q; want one line with %q", args, got, want)
		}
	}
}
