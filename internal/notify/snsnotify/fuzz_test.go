package snsnotify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// FuzzSlot: whatever a queue delivers, a slot comes only from a message that names the
// journal or one of its objects, and never from this server's own.
func FuzzSlot(f *testing.F) {
	c := &Config{Journal: journal.ID{1}, Bucket: "bucket", Prefix: "some/where"}
	hint := fmt.Sprintf(`{"xbernetesJournal":%q,"slot":7,"writer":"other"}`, c.Journal)
	object := `{"bucket":{"name":"bucket"},"object":{"key":"some/where/journal/00000000000000000007"}}`
	for _, body := range []string{
		hint, strings.Replace(hint, "other", "self", 1), fmt.Sprintf(`{"Type":"Notification","Message":%q}`, hint),
		`{"Records":[{"eventSource":"aws:s3","s3":` + object + `}]}`, `{"source":"aws.s3","detail":` + object + `}`,
		`{"Records":[{"eventSource":"aws:s3","s3":{"object":{"key":"%"}}}]}`, `[]`, ``,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		slot := c.slot(body, "self")
		if slot != 0 && !strings.Contains(strings.ToLower(body), "journal") && !strings.Contains(body, `\u`) && !strings.Contains(body, "%") {
			t.Errorf("slot %d comes from a message that names no journal: %.200q", slot, body)
		}
		if slot != 0 && len(body) > maxMessage {
			t.Errorf("slot %d comes from a message of %d bytes", slot, len(body))
		}
		if other := (&Config{Journal: journal.ID{2}}).slot(body, "self"); other != 0 && other == slot {
			t.Errorf("slot %d is one of two journals by the same message: %.200q", slot, body)
		}
	})
}

// FuzzParseURL: a URL is refused in a sentence, or names a topic or a queue by a whole ARN
// and nothing that could be a secret.
func FuzzParseURL(f *testing.F) {
	const topic, queue = "arn:aws:sns:eu-west-1:111122223333:xb", "arn:aws:sqs:eu-west-1:111122223333:xb"
	for _, raw := range []string{
		"sns://" + topic + "?queue=create", "sns://" + topic + "?queue=" + queue + "&profile=p", "sqs://" + queue,
		"sns://" + topic + "?queue=create&region=eu-west-2&endpoint=http://127.0.0.1:1", "sns://user:password@" + topic, "", "://", "sqs://?%",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := ParseURL(raw)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("the error is more than a line: %q", err)
			}
			return
		}
		if c.Topic == "" && c.Queue == "" || c.Topic != "" && !arnPattern.MatchString(c.Topic) || c.Queue != "" && !arnPattern.MatchString(c.Queue) {
			t.Errorf("%q is taken for topic %q and queue %q", raw, c.Topic, c.Queue)
		}
		if strings.Contains(c.Endpoint, "@") && !strings.Contains(strings.SplitN(c.Endpoint, "://", 2)[1], "/") {
			t.Errorf("%q is taken, with credentials in its endpoint", raw)
		}
	})
}
