package snsnotify

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// Config says which topic and queue to use. It is complete once Journal is set.
type Config struct {
	// Topic is the ARN of the topic that the servers of the journal publish to. Empty:
	// nothing is published, and the queue is fed by events of the bucket.
	Topic string
	// Queue is the ARN of a queue that this server has to itself. Empty: a queue is
	// created in Region, and removed when Run ends.
	Queue string
	// Region is where a queue is created. Empty: the topic's region.
	Region string
	// Endpoint is the base URL of a service other than AWS. Empty: AWS.
	Endpoint string
	// Profile names a profile of the shared AWS configuration files.
	Profile string

	// Journal is the journal whose hints count.
	Journal journal.ID
	// Bucket and Prefix are where the journal's objects are, without slashes at the
	// ends of Prefix. Events of other objects do not count. Empty Bucket: no event does.
	Bucket, Prefix string

	// Credentials are used in place of the SDK's ordinary chain.
	Credentials aws.CredentialsProvider
	// Logger is told when notifications stop or come back, and why. Required.
	Logger *slog.Logger
}

// Forms are how URLs of Config are written.
const Forms = "sns://TOPIC-ARN?queue=create, sns://TOPIC-ARN?queue=QUEUE-ARN or sqs://QUEUE-ARN (fed by events of the bucket)"

var (
	arnPattern    = regexp.MustCompile(`^arn:aws[a-z-]*:(sns|sqs):[a-z0-9-]{1,64}:[0-9]{12}:[A-Za-z0-9_-]{1,256}$`)
	regionPattern = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
)

// ParseURL reads sns://TOPIC-ARN?queue=create|QUEUE-ARN&region=…&endpoint=…&profile=…
// and sqs://QUEUE-ARN?endpoint=…&profile=…. Its errors repeat nothing of the URL that
// may be a secret.
func ParseURL(raw string) (Config, error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	arn, rawQuery, _ := strings.Cut(rest, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil || strings.ContainsAny(arn, "@#") {
		return Config{}, fmt.Errorf("--notify is malformed; want %s", Forms)
	}
	cfg := Config{}
	for name, values := range query {
		if len(values) != 1 || values[0] == "" {
			return Config{}, fmt.Errorf("--notify must give %q once, with a value", name)
		}
		switch name {
		case "queue":
			cfg.Queue = values[0]
		case "region":
			cfg.Region = values[0]
		case "endpoint":
			cfg.Endpoint = values[0]
		case "profile":
			cfg.Profile = values[0]
		default:
			return Config{}, fmt.Errorf("--notify has an unknown parameter %q; known are queue, region, endpoint and profile", name)
		}
	}
	switch scheme {
	case "sns":
		cfg.Topic = arn
		if cfg.Topic == "" {
			return Config{}, errNoTopic
		}
		if cfg.Queue == "" {
			return Config{}, errors.New("--notify names no queue; add ?queue=create, or ?queue=QUEUE-ARN for one that this server has to itself")
		}
		if cfg.Queue == "create" {
			cfg.Queue = ""
		}
	case "sqs":
		if cfg.Queue != "" {
			return Config{}, errors.New("--notify names two queues; write sqs://QUEUE-ARN alone")
		}
		if cfg.Queue = arn; arn == "" {
			return Config{}, errNoQueue
		}
	default:
		return Config{}, fmt.Errorf("--notify has a scheme that this build does not know; want %s", Forms)
	}
	return cfg, cfg.validate()
}

var (
	errNoTopic = errors.New("--notify does not name a topic by its ARN; want sns://arn:aws:sns:REGION:ACCOUNT:NAME?queue=create")
	errNoQueue = errors.New("--notify does not name a queue by its ARN; want arn:aws:sqs:REGION:ACCOUNT:NAME")
)

func (c *Config) validate() error {
	if c.Topic != "" && (!arnPattern.MatchString(c.Topic) || part(c.Topic, 2) != "sns") {
		return errNoTopic
	}
	if c.Queue != "" && (!arnPattern.MatchString(c.Queue) || part(c.Queue, 2) != "sqs") {
		return errNoQueue
	}
	if c.Region != "" && (c.Queue != "" || !regionPattern.MatchString(c.Region)) {
		return errors.New("region in --notify must be the name of a region, and goes with queue=create only")
	}
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return errors.New("endpoint in --notify must be http://HOST:PORT or https://HOST, without credentials")
		}
	}
	return nil
}

// part is one of the parts of an ARN: 2 is its service, 3 its region, 4 its account, 5
// its name.
func part(arn string, i int) string { return strings.SplitN(arn, ":", 6)[i] }
