package snsnotify

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/xbernetes/xbernetes/internal/journal"
)

const (
	// maxMessage is the length of the longest message that is read, in bytes. An event
	// of S3 with the longest key has about 5 KiB.
	maxMessage = 16 << 10
	// maxEvents is how many events of one message are looked at. S3 sends one.
	maxEvents = 16
)

// hint is what servers publish.
type hint struct {
	Journal string `json:"xbernetesJournal"`
	Slot    uint64 `json:"slot"`
	Writer  string `json:"writer"` // the name that the publisher gave itself
}

// message is any of: a hint; an event notification of S3; an event of EventBridge; or
// one of these in the envelope of SNS.
type message struct {
	hint
	Message string  `json:"Message"` // SNS, without raw delivery
	Records []event `json:"Records"` // S3
	Source  string  `json:"source"`  // EventBridge
	Detail  object  `json:"detail"`
}

type event struct {
	Source string `json:"eventSource"`
	S3     object `json:"s3"`
}

// object is the part that events of S3 and of EventBridge have in common, but for the
// key, which only S3 escapes.
type object struct {
	Bucket struct {
		Name string `json:"name"`
	} `json:"bucket"`
	Object struct {
		Key string `json:"key"`
	} `json:"object"`
}

// slot returns the highest slot that a message tells of; 0: none of this journal, or
// only one of this server's own.
func (c *Config) slot(body, self string) journal.Slot {
	var m message
	if len(body) > maxMessage || json.Unmarshal([]byte(body), &m) != nil {
		return 0
	}
	if inner := m.Message; inner != "" {
		if m = (message{}); json.Unmarshal([]byte(inner), &m) != nil {
			return 0
		}
	}
	if m.Journal != "" {
		if m.Journal != c.Journal.String() || m.Writer == self {
			return 0
		}
		return journal.Slot(m.Slot)
	}
	if m.Source == "aws.s3" {
		return c.keySlot(m.Detail, m.Detail.Object.Key)
	}
	var newest journal.Slot
	for _, e := range m.Records[:min(len(m.Records), maxEvents)] {
		if key, err := url.QueryUnescape(e.S3.Object.Key); err == nil && e.Source == "aws:s3" {
			newest = max(newest, c.keySlot(e.S3, key))
		}
	}
	return newest
}

// keySlot is the slot that an object of the journal holds; 0: the object is no slot of it.
func (c *Config) keySlot(e object, key string) journal.Slot {
	before := "journal/"
	if c.Prefix != "" {
		before = c.Prefix + "/" + before
	}
	digits, ok := strings.CutPrefix(key, before)
	if !ok || len(digits) != 20 || c.Bucket == "" || e.Bucket.Name != c.Bucket {
		return 0
	}
	slot, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0
	}
	return journal.Slot(slot)
}
