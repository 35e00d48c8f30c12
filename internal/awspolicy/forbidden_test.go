package awspolicy_test

import (
	"testing"

	"github.com/xbernetes/xbernetes/internal/awspolicy"
)

const (
	ownAccount = "111111111111" // of the bucket and the topic
	others     = "222222222222" // another party's account

	topic = "arn:aws:sns:eu-west-1:111111111111:xb"
	queue = "arn:aws:sqs:us-east-1:222222222222:xb"
)

var notifications = awspolicy.Notifications{Topic: topic, Queue: queue}

// object is a request for an object of the bucket. context is key, value, …
func object(action, key string, context ...string) request {
	return request{Action: action, Resource: "arn:aws:s3:::shared/" + key, Context: pairs(context)}
}

// onBucket is a request for the bucket itself.
func onBucket(action string, context ...string) request {
	return request{Action: action, Resource: "arn:aws:s3:::shared", Context: pairs(context)}
}

func pairs(context []string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(context); i += 2 {
		m[context[i]] = context[i+1]
	}
	return m
}

const (
	ifNoneMatch = "s3:if-none-match"
	slot        = "prod/journal/00000000000000000001"
)

// forbidden is what a party of each role may not do, whatever its intentions. What a role
// may not do, none before it may.
var forbidden = map[awspolicy.Role]map[string]request{
	awspolicy.Owner: {
		"replace a record":                    object("s3:PutObject", slot),
		"replace a record by a copy":          object("s3:PutObject", slot, "s3:x-amz-copy-source", "shared/"+slot),
		"replace a record in parts":           object("s3:PutObject", slot, "s3:ObjectCreationOperation", "false"),
		"replace a record if it is a certain": object("s3:PutObject", slot, "s3:if-match", "etag"),
		"replace a snapshot":                  object("s3:PutObject", "prod/blobs/snapshot!1!manifest.json"),
		"replace a floor":                     object("s3:PutObject", "prod/floor/00000000000000000001"),
		"replace the journal's id":            object("s3:PutObject", "prod/meta.json"),
		"delete the journal's id":             object("s3:DeleteObject", "prod/meta.json"),
		"delete a version for good":           object("s3:DeleteObjectVersion", slot),
		"create elsewhere":                    object("s3:PutObject", "other/journal/00000000000000000001", ifNoneMatch, "*"),
		"create beside the journal":           object("s3:PutObject", "prod/other", ifNoneMatch, "*"),
		"read another prefix":                 object("s3:GetObject", "other/journal/00000000000000000001"),
		"read a prefix that begins alike":     object("s3:GetObject", "production/journal/00000000000000000001"),
		"delete in another prefix":            object("s3:DeleteObject", "other/journal/00000000000000000001"),
		"list another prefix":                 onBucket("s3:ListBucket", "s3:prefix", "other/"),
		"list a prefix that begins alike":     onBucket("s3:ListBucket", "s3:prefix", "production/journal/"),
		"list the whole bucket":               onBucket("s3:ListBucket"),
		"list with an empty prefix":           onBucket("s3:ListBucket", "s3:prefix", ""),
		"list what begins like the prefix":    onBucket("s3:ListBucket", "s3:prefix", "prod"),
		"list versions":                       onBucket("s3:ListBucketVersions", "s3:prefix", "prod/journal/"),
		"change the bucket's policy":          onBucket("s3:PutBucketPolicy"),
		"change the bucket's lifecycle":       onBucket("s3:PutLifecycleConfiguration"),
		"delete the bucket":                   onBucket("s3:DeleteBucket"),
		"open a record to others":             object("s3:PutObjectAcl", slot),
		"tag a record":                        object("s3:PutObjectTagging", slot),
		"publish to another topic":            {Action: "sns:Publish", Resource: topic + "2"},
		"change the topic":                    {Action: "sns:SetTopicAttributes", Resource: topic},
		"receive from another queue":          {Action: "sqs:ReceiveMessage", Resource: queue + "2"},
		"send to its queue, past the topic":   {Action: "sqs:SendMessage", Resource: queue},
	},
	awspolicy.Writer: {
		"delete a record":         object("s3:DeleteObject", slot),
		"delete a floor":          object("s3:DeleteObject", "prod/floor/00000000000000000001"),
		"delete a snapshot":       object("s3:DeleteObject", "prod/blobs/snapshot!1!manifest.json"),
		"delete a probe":          object("s3:DeleteObject", "prod/probe/0123456789abcdef/passed"),
		"create a floor":          object("s3:PutObject", "prod/floor/00000000000000000001", ifNoneMatch, "*"),
		"create a journal":        object("s3:PutObject", "prod/meta.json", ifNoneMatch, "*"),
		"look at the settings":    onBucket("s3:GetLifecycleConfiguration"),
		"look at the object lock": onBucket("s3:GetBucketObjectLockConfiguration"),
	},
	awspolicy.Reader: {
		"create a record":   object("s3:PutObject", slot, ifNoneMatch, "*"),
		"create a snapshot": object("s3:PutObject", "prod/blobs/snapshot!1!manifest.json", ifNoneMatch, "*"),
		"read a probe":      object("s3:GetObject", "prod/probe/0123456789abcdef/passed"),
		"publish":           {Action: "sns:Publish", Resource: topic},
	},
}

// mayNot calls do with each request that a party of role may not make.
func mayNot(role awspolicy.Role, do func(what string, r request)) {
	for r := role; r <= awspolicy.Owner; r++ {
		for what, asked := range forbidden[r] {
			do(what, asked)
		}
	}
}

// TestForbidden: by its own policy a party can do no more than its role says.
func TestForbidden(t *testing.T) {
	for role := awspolicy.Reader; role <= awspolicy.Owner; role++ {
		identity := awspolicy.Identity(where, role, notifications)
		mayNot(role, func(what string, r request) {
			if verdict(r, identity) {
				t.Errorf("a %v may %s", role, what)
			}
		})
	}
}

// TestNobodyReplaces: the bucket's policy alone keeps objects of the journal from being
// replaced or sent in clear text, even by those of the bucket's account who may do
// everything.
func TestNobodyReplaces(t *testing.T) {
	everything := awspolicy.Document{Statement: []awspolicy.Statement{{Sid: "Everything", Effect: "Allow", Action: []string{"*"}, Resource: []string{"*"}}}}
	for what, test := range map[string]struct {
		r    request
		want bool
	}{
		"replace a record":           {object("s3:PutObject", slot), false},
		"replace a snapshot":         {object("s3:PutObject", "prod/blobs/x"), false},
		"replace the journal's id":   {object("s3:PutObject", "prod/meta.json"), false},
		"create a record":            {object("s3:PutObject", slot, ifNoneMatch, "*"), true},
		"replace something else's":   {object("s3:PutObject", "other/file"), true},
		"read in clear text":         {object("s3:GetObject", slot, "aws:SecureTransport", "false"), false},
		"read":                       {object("s3:GetObject", slot), true},
		"delete a record, as admins": {object("s3:DeleteObject", slot), true},
	} {
		if got := verdict(test.r, everything, awspolicy.Bucket(where)); got != test.want {
			t.Errorf("%s: allowed %v, want %v", what, got, test.want)
		}
	}
}
