// Package awspolicy says which requests to AWS each party to a journal needs, as the
// policies of IAM, S3, SNS and SQS. It never speaks to AWS, and never says who should
// trust whom.
package awspolicy

import (
	"errors"
	"fmt"
	"slices"
)

// Document is a policy as AWS reads it.
type Document struct {
	Version   string      `json:"Version"` // of AWS's language of policies
	Statement []Statement `json:"Statement"`
}

// Statement allows or denies actions.
type Statement struct {
	Sid       string                         `json:"Sid"`
	Effect    string                         `json:"Effect"`              // Allow or Deny
	Principal Principals                     `json:"Principal,omitempty"` // in a resource's policy only
	Action    []string                       `json:"Action"`
	Resource  []string                       `json:"Resource"`
	Condition map[string]map[string][]string `json:"Condition,omitempty"` // operator, key, values
}

// Principals are whom a statement is about, by kind: AWS or Service.
type Principals map[string][]string

const languageVersion = "2012-10-17"

// Role is what a party does with a journal. Each role may do all that the ones before
// it may.
type Role int

// The roles.
const (
	Reader Role = iota // reads the journal, as xb fsck and xb journal do
	Writer             // runs a server: it adds records and snapshots, and deletes nothing
	Owner              // runs a server, creates the journal, and deletes what it gave up (--trim always)
)

var roleNames = []string{"reader", "writer", "owner"}

// ParseRole returns the role of that name.
func ParseRole(name string) (Role, error) {
	if i := slices.Index(roleNames, name); i >= 0 {
		return Role(i), nil
	}
	return 0, fmt.Errorf("the role is %q; want reader, writer or owner", name)
}

func (r Role) String() string { return roleNames[r] }

// Journal is where a journal in S3 lives.
type Journal struct {
	Partition string // of AWS: aws, aws-cn or aws-us-gov
	Bucket    string
	Prefix    string // of its objects, without slashes at its ends; may be empty
}

// Party is somebody who uses a journal.
type Party struct {
	Role      Role
	Principal string // the ARN of an IAM role, of a user, or of a whole account (…:root)
}

// grant allows a role, and those after it, one action on some of a journal's objects.
type grant struct {
	sid      string
	role     Role
	action   string
	objects  []string // below the prefix
	ifAbsent bool     // only under the condition that the object does not exist
}

// grants are what the driver needs. internal/journal/s3log's README says what the
// objects are for; a test holds this table against the requests of running servers.
var grants = []grant{
	{"ReadJournal", Reader, "s3:GetObject", []string{"meta.json", "journal/*", "blobs/*"}, false},
	{"ReadProbe", Writer, "s3:GetObject", []string{"probe/*"}, false},
	{"Create", Writer, "s3:PutObject", []string{"journal/*", "blobs/*", "probe/*"}, true},
	{"CreateJournal", Owner, "s3:PutObject", []string{"meta.json", "floor/*"}, true},
	{"Delete", Owner, "s3:DeleteObject", []string{"journal/*", "floor/*", "blobs/*", "probe/*"}, false},
}

// listed are the objects whose names a role may list. S3 also asks for this right before
// it says that an object is not there, and takes the object's key for the prefix then;
// without the right, it denies to read the object.
var listed = map[Role][]string{
	Reader: {"meta.json", "journal/*", "floor/*", "blobs/*"},
	Writer: {"probe/*"},
}

// Identity is the policy of an IAM role or user that has the role in j, and the rights
// that it needs for notifications.
func Identity(j Journal, role Role, n Notifications) Document {
	return Document{languageVersion, append(j.allow(role, "", nil), n.allow(role)...)}
}

// Bucket is the policy of j's bucket. It lets the parties in, who are usually those of
// other accounts: one of the same account needs no more than its own policy. And it
// holds for all, the bucket's own account included: nobody replaces an object of the
// journal, or speaks to the bucket in clear text.
func Bucket(j Journal, parties ...Party) Document {
	d := Document{Version: languageVersion, Statement: []Statement{
		{
			Sid: "DenyClearText", Effect: "Deny", Principal: everybody, Action: []string{"s3:*"}, Resource: []string{j.bucketARN(), j.bucketARN() + "/*"},
			Condition: map[string]map[string][]string{"Bool": {"aws:SecureTransport": {"false"}}},
		},
		{
			Sid: "DenyReplacing", Effect: "Deny", Principal: everybody, Action: []string{"s3:PutObject"},
			Resource:  j.objects([]string{"meta.json", "journal/*", "floor/*", "blobs/*", "probe/*"}),
			Condition: ifAbsent("true"),
		},
	}}
	for i, p := range parties {
		suffix := ""
		if len(parties) > 1 {
			suffix = fmt.Sprint(i + 1)
		}
		d.Statement = append(d.Statement, j.allow(p.Role, suffix, Principals{"AWS": {p.Principal}})...)
	}
	return d
}

// everybody is each caller, of whichever account.
var everybody = Principals{"AWS": {"*"}}

// ifAbsent holds for a PUT that is carried out whether or not the object exists, if
// missing is "true"; if it is "false", for one that creates.
func ifAbsent(missing string) map[string]map[string][]string {
	return map[string]map[string][]string{"Null": {"s3:if-none-match": {missing}}}
}

// allow returns the statements that allow a role what it needs in the bucket. Their
// names end in suffix.
func (j Journal) allow(role Role, suffix string, who Principals) (all []Statement) {
	for _, g := range grants {
		if g.role > role {
			continue
		}
		s := Statement{Sid: g.sid + suffix, Effect: "Allow", Principal: who, Action: []string{g.action}, Resource: j.objects(g.objects)}
		if g.ifAbsent {
			s.Condition = ifAbsent("false")
		}
		all = append(all, s)
	}
	var names []string
	for r := Reader; r <= role; r++ {
		for _, objects := range listed[r] {
			names = append(names, j.key(objects))
		}
	}
	all = append(all, Statement{
		Sid: "List" + suffix, Effect: "Allow", Principal: who, Action: []string{"s3:ListBucket"}, Resource: []string{j.bucketARN()},
		Condition: map[string]map[string][]string{"StringLike": {"s3:prefix": names}},
	})
	return all
}

func (j Journal) bucketARN() string { return "arn:" + j.Partition + ":s3:::" + j.Bucket }

// objects are the ARNs of objects below the prefix.
func (j Journal) objects(names []string) (arns []string) {
	for _, name := range names {
		arns = append(arns, j.bucketARN()+"/"+j.key(name))
	}
	return arns
}

func (j Journal) key(name string) string {
	if j.Prefix == "" {
		return name
	}
	return j.Prefix + "/" + name
}

// Set is every policy that one party to a journal needs.
type Set struct {
	Identity Document  `json:"identity"`        // attach it to the party's IAM role
	Bucket   Document  `json:"bucket"`          // of the bucket
	Topic    *Document `json:"topic,omitempty"` // of the topic; for a party of another account
	Queue    *Document `json:"queue,omitempty"` // of the party's queue
}

// For returns the policies of a party. An empty principal is a party of the bucket's own
// account.
func For(j Journal, p Party, n Notifications) (Set, error) {
	s := Set{Identity: Identity(j, p.Role, n)}
	if p.Principal == "" {
		s.Bucket = Bucket(j)
	} else {
		s.Bucket = Bucket(j, p)
	}
	if topic := TopicPolicy(n, p); n.Topic != "" && p.Principal != "" && len(topic.Statement) > 0 {
		s.Topic = &topic
	}
	if n.Topic != "" && n.Queue != "" {
		queue, err := QueuePolicy(n)
		if err != nil {
			return Set{}, err
		}
		s.Queue = &queue
	}
	return s, nil
}

// Named returns the policy of the set that is called identity, bucket, topic or queue.
func (s Set) Named(name string) (*Document, error) {
	switch name {
	case "identity":
		return &s.Identity, nil
	case "bucket":
		return &s.Bucket, nil
	case "topic":
		if s.Topic != nil {
			return s.Topic, nil
		}
		return nil, errors.New("there is no policy of a topic: it is for a party of another account that publishes or subscribes; give --topic, and --account or --principal")
	case "queue":
		if s.Queue != nil {
			return s.Queue, nil
		}
		return nil, errors.New("there is no policy of a queue; give --topic and --queue")
	}
	return nil, fmt.Errorf("there is no policy called %q; want identity, bucket, topic or queue", name)
}
