package snsnotify_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"go.uber.org/goleak"

	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/notify"
	"github.com/xbernetes/xbernetes/internal/notify/notifytest"
	"github.com/xbernetes/xbernetes/internal/notify/snsnotify"
	"github.com/xbernetes/xbernetes/internal/notify/snsnotify/snsfake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	topic   = "arn:aws:sns:eu-west-1:111122223333:xb"
	account = "111122223333"
	secret  = "s3cr3t"
)

// serve runs a replica that is woken through a fake. It polls once an hour, so that only
// notifications wake it.
func serve(t *testing.T, f *snsfake.Fake, store journal.Store, change func(*snsnotify.Config)) *notifytest.Server {
	t.Helper()
	var s *notifytest.Server
	t.Cleanup(func() { // after the replica has ended
		if s != nil && strings.Contains(s.Log.String(), secret) {
			t.Error("the log holds the secret")
		}
	})
	s = notifytest.Serve(t, store, time.Hour, func(log *slog.Logger) notify.Source {
		cfg := snsnotify.Config{
			Topic: topic, Endpoint: f.URL, Journal: store.Info().ID, Logger: log,
			Credentials: credentials.NewStaticCredentialsProvider(account, secret, ""),
		}
		if change != nil {
			change(&cfg)
		}
		source, err := snsnotify.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return source
	})
	return s
}

// pair is two servers of one journal, both subscribed.
func pair(t *testing.T) (f *snsfake.Fake, a, b *notifytest.Server) {
	f = snsfake.New(t, topic)
	store := memlog.New(memlog.Options{})
	a, b = serve(t, f, store.Open(), nil), serve(t, f, store.Open(), nil)
	notifytest.Eventually(t, "two servers that receive", func() bool { return f.Subscriptions(topic) == 2 && f.Calls("sqs:ReceiveMessage") >= 4 })
	return f, a, b
}

func TestOneServerWakesAnother(t *testing.T) {
	f, a, b := pair(t)
	for i := range 5 {
		rev := a.Put(t, fmt.Sprint("k", i))
		notifytest.Eventually(t, "a's write at b", func() bool { return b.View().Revision() >= rev })
	}
	if n := f.Calls("sns:Publish"); n > 5 {
		t.Errorf("%d notifications of five writes", n)
	}
	if n := a.Woken.Counts().Received; n > 0 {
		t.Errorf("%d of a's own notifications come back to it", n)
	}
	a.Has(t, b.Put(t, "l"))
	a.Stop()
	b.Stop()
	if len(f.Queues()) != 0 || f.Subscriptions(topic) != 0 {
		t.Errorf("servers that stopped left %v and %d subscriptions", f.Queues(), f.Subscriptions(topic))
	}
}

func TestForeignMessagesWakeNobody(t *testing.T) {
	f, a, b := pair(t)
	f.Send("", "{", "null", `[]`, `{"xbernetesJournal":7}`, `{"xbernetesJournal":"00","slot":9}`,
		`{"Records":[{"eventSource":"aws:s3"}]}`, `{"slot":-1}`, strings.Repeat("[", 10_000), strings.Repeat("x", 1<<20))
	b.Has(t, a.Put(t, "k"))
	if n := b.Woken.Counts().Received; n != 1 {
		t.Errorf("b took %d messages for notifications, want 1", n)
	}
}

func TestQueueThatIsGoneIsMadeAgain(t *testing.T) {
	f, a, b := pair(t)
	f.RemoveQueues()
	notifytest.Eventually(t, "queues made again", func() bool { return len(f.Queues()) == 2 && f.Subscriptions(topic) == 2 })
	notifytest.Eventually(t, "a word that all is well", func() bool { return strings.Contains(b.Log.String(), "work again") })
	b.Has(t, a.Put(t, "k"))
	if !strings.Contains(b.Log.String(), "does not exist") || b.Woken.Counts().Failed == 0 {
		t.Errorf("b did not say that its queue was gone:\n%s", b.Log)
	}
}

func TestRefusalsNameTheActionAndTheResource(t *testing.T) {
	for _, test := range []struct {
		action, code string
		want         []string
	}{
		{"sns:Subscribe", "AuthorizationError", []string{"sns:Subscribe on " + topic + " is denied"}},
		{"sns:Publish", "AuthorizationError", []string{"sns:Publish on " + topic + " is denied", "must poll"}},
		{"sqs:CreateQueue", "AccessDenied", []string{"sqs:CreateQueue on the queue xb-", "is denied"}},
		{"sqs:SetQueueAttributes", "AccessDenied", []string{"sqs:SetQueueAttributes on arn:aws:sqs:eu-west-1:" + account, "is denied", "aws:SourceArn", "sns.amazonaws.com"}},
		{"sqs:ReceiveMessage", "AccessDenied", []string{"sqs:ReceiveMessage on arn:aws:sqs:eu-west-1:" + account, "is denied"}},
		{"sqs:CreateQueue", "InvalidClientTokenId", []string{"does not accept the credentials (InvalidClientTokenId)"}},
		{"sqs:CreateQueue", "ExpiredToken", []string{"does not accept the credentials (ExpiredToken)"}},
		{"sns:Subscribe", "NotFound", []string{"sns:Subscribe on " + topic + ": it does not exist"}},
	} {
		t.Run(test.action+" "+test.code, func(t *testing.T) {
			f := snsfake.New(t, topic)
			f.Refuse(test.action, test.code)
			s := serve(t, f, memlog.New(memlog.Options{}).Open(), nil)
			s.Put(t, "k")
			for _, want := range test.want {
				notifytest.Eventually(t, want+" in the log", func() bool { return strings.Contains(strings.ReplaceAll(s.Log.String(), `\"`, `"`), want) })
			}
			s.Stop()
			if left := f.Queues(); len(left) > 0 {
				t.Errorf("the server leaves %v behind", left)
			}
		})
	}
}

func TestAnotherAccountIsToldTheStatementThatIsMissing(t *testing.T) {
	f := snsfake.New(t, topic)
	f.Refuse("sns:Subscribe", "AuthorizationError")
	s := serve(t, f, memlog.New(memlog.Options{}).Open(), func(c *snsnotify.Config) {
		c.Region = "me-south-1"
		c.Credentials = credentials.NewStaticCredentialsProvider("444455556666", secret, "")
	})
	notifytest.Eventually(t, "the statement", func() bool {
		log := strings.ReplaceAll(s.Log.String(), `\"`, `"`)
		return strings.Contains(log, `"AWS":["arn:aws:iam::444455556666:root"]`) && strings.Contains(log, `"Resource":"`+topic+`"`)
	})
}

// TestQueueInAnotherRegionAndAccount: the queue is made where it is asked for, and
// subscribed from the topic's region.
func TestQueueInAnotherRegionAndAccount(t *testing.T) {
	f := snsfake.New(t, topic)
	store := memlog.New(memlog.Options{})
	a := serve(t, f, store.Open(), nil)
	b := serve(t, f, store.Open(), func(c *snsnotify.Config) {
		c.Region = "us-west-2"
		c.Credentials = credentials.NewStaticCredentialsProvider("444455556666", secret, "")
	})
	notifytest.Eventually(t, "two servers that receive", func() bool { return f.Subscriptions(topic) == 2 && f.Calls("sqs:ReceiveMessage") >= 4 })
	b.Has(t, a.Put(t, "k"))
}

func TestQueueOfItsOwnerIsUsedAndKept(t *testing.T) {
	const queue = "arn:aws:sqs:eu-west-1:111122223333:mine"
	f := snsfake.New(t, topic)
	f.MakeQueue(queue, `{"Statement":[{"Resource":"`+topic+`"}]}`)
	store := memlog.New(memlog.Options{})
	a := serve(t, f, store.Open(), nil)
	b := serve(t, f, store.Open(), func(c *snsnotify.Config) { c.Queue = queue })
	notifytest.Eventually(t, "two servers that receive", func() bool { return f.Subscriptions(topic) == 2 && f.Calls("sqs:ReceiveMessage") >= 4 })
	b.Has(t, a.Put(t, "k"))
	b.Stop()
	a.Stop()
	if q := f.Queues(); len(q) != 1 || q[0] != queue {
		t.Errorf("after both stopped there are %v", q)
	}
}

// TestBucketEventsWake: a queue that the bucket feeds, in each of the shapes.
func TestBucketEventsWake(t *testing.T) {
	const queue = "arn:aws:sqs:eu-west-1:111122223333:events"
	s3 := `{"Records":[{"eventSource":"aws:s3","s3":{"bucket":{"name":"B"},"object":{"key":"a%3Db/journal/00000000000000000001"}}}]}`
	for name, body := range map[string]string{
		"S3":          s3,
		"SNS":         `{"Type":"Notification","Message":"` + strings.ReplaceAll(s3, `"`, `\"`) + `"}`,
		"EventBridge": `{"source":"aws.s3","detail":{"bucket":{"name":"B"},"object":{"key":"a=b/journal/00000000000000000001"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := snsfake.New(t)
			f.MakeQueue(queue, "")
			store := memlog.New(memlog.Options{})
			events := func(c *snsnotify.Config) { c.Topic, c.Queue, c.Bucket, c.Prefix = "", queue, "B", "a=b" }
			a := serve(t, f, store.Open(), nil) // its topic does not exist
			b := serve(t, f, store.Open(), events)
			notifytest.Eventually(t, "a server that receives", func() bool { return f.Calls("sqs:ReceiveMessage") >= 2 })
			rev := a.Put(t, "k")
			f.Send(strings.Replace(body, `"B"`, `"C"`, 1), strings.Replace(body, "/journal/", "/floor/", 1), body)
			notifytest.Eventually(t, "a's write at b", func() bool { return b.View().Revision() >= rev })
			if n := b.Woken.Counts().Received; n != 1 {
				t.Errorf("%d notifications, want 1: the others are of other objects", n)
			}
		})
	}
}

func TestParseURL(t *testing.T) {
	for _, good := range []string{
		"sns://" + topic + "?queue=create", "sns://" + topic + "?queue=create&region=us-west-2&profile=p",
		"sns://" + topic + "?queue=arn:aws:sqs:eu-west-1:111122223333:q", "sqs://arn:aws:sqs:eu-west-1:111122223333:q?endpoint=http://127.0.0.1:1",
	} {
		if _, err := snsnotify.ParseURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "sns://", "sns://" + topic, "sns://topic?queue=create", "sqs://" + topic, "http://x", "sns://" + topic + "?queue=create&queue=create",
		"sns://" + topic + "?queue=create&secret=" + secret, "sns://u:" + secret + "@" + topic, "sns://" + topic + "?queue=create&endpoint=http://u:" + secret + "@h",
		"sqs://arn:aws:sqs:eu-west-1:111122223333:q?region=eu-west-1",
	} {
		if _, err := snsnotify.ParseURL(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

// TestQueueWithoutThePolicyIsToldWhatItNeeds: a topic that may not send to a queue says so to
// nobody, so the server does.
func TestQueueWithoutThePolicyIsToldWhatItNeeds(t *testing.T) {
	const queue = "arn:aws:sqs:eu-west-1:" + account + ":given"
	const word = "does not name the topic"
	for policy, told := range map[string]bool{"": true, `{"Condition":{"ArnEquals":{"aws:SourceArn":"` + topic + `"}}}`: false} {
		f := snsfake.New(t, topic)
		f.MakeQueue(queue, policy)
		s := serve(t, f, memlog.New(memlog.Options{}).Open(), func(c *snsnotify.Config) { c.Queue = queue })
		notifytest.Eventually(t, "a server that receives", func() bool { return f.Calls("sqs:ReceiveMessage") > 0 })
		log := strings.ReplaceAll(s.Log.String(), `\"`, `"`)
		if strings.Contains(log, word) != told || told && !strings.Contains(log, `"aws:SourceArn":"`+topic+`"`) {
			t.Errorf("with the policy %q the log has:\n%s", policy, log)
		}
		s.Stop()
	}
}
