package s3bucket

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// Config says where a journal lives and how to reach it. Bucket is required;
// the zero value of every other field is useful. ReadOnly and Logger are for the
// journal: this package writes whatever it is told to, and logs nothing.
type Config struct {
	// Bucket holds the journal. It must exist.
	Bucket string
	// Prefix comes before every key, without slashes at its ends. Several
	// journals share a bucket under different prefixes. None of them may be
	// inside another.
	Prefix string
	// Region is the bucket's region. Empty: the SDK's own chain (AWS_REGION,
	// the profile), or us-east-1 when Endpoint is set.
	Region string
	// Endpoint is the base URL of a store other than AWS. Empty: AWS.
	Endpoint string
	// PathStyle puts the bucket in the path, not in the host name.
	PathStyle bool
	// Profile names a profile of the shared AWS configuration files.
	Profile string

	// Credentials are used in place of the SDK's ordinary chain; then nothing
	// is read from the environment or from files either.
	Credentials aws.CredentialsProvider
	// RequestTimeout bounds one request, as bucket.Timeout.
	RequestTimeout time.Duration
	// ReadOnly opens a journal that must exist, creates and proves nothing,
	// and refuses to change anything.
	ReadOnly bool
	// Logger is told of each retry, and why. nil: nothing is logged.
	Logger *slog.Logger
}

// The parameters that a journal URL may have.
const (
	paramRegion    = "region"
	paramEndpoint  = "endpoint"
	paramPathStyle = "path-style"
	paramProfile   = "profile"
)

var (
	bucketPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	regionPattern = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	secretPattern = regexp.MustCompile(`(?i)secret|token|password|credential|access|key|signature`)
)

// ParseURL reads s3://bucket/prefix?region=…&endpoint=…&path-style=…&profile=….
// With an endpoint, path-style is true unless the URL says otherwise. A URL
// that carries a secret is refused, and the error does not repeat it.
func ParseURL(u *url.URL) (Config, error) {
	if u.Scheme != "s3" {
		return Config{}, fmt.Errorf("journal URL has the scheme %q; want s3://bucket/prefix", u.Scheme)
	}
	if u.User != nil {
		return Config{}, fmt.Errorf("journal URL carries credentials before the bucket; remove them, and give them by AWS_PROFILE, by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or by ?profile=NAME")
	}
	if u.Opaque != "" || u.Fragment != "" {
		return Config{}, fmt.Errorf("journal URL is malformed; want s3://bucket/prefix?region=REGION")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Config{}, fmt.Errorf("journal URL has a malformed query; want ?region=REGION&endpoint=URL&path-style=BOOL&profile=NAME")
	}
	cfg := Config{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/")}
	for name, values := range query {
		if err := cfg.setParam(name, values); err != nil {
			return Config{}, err
		}
	}
	if cfg.Endpoint != "" && !query.Has(paramPathStyle) {
		cfg.PathStyle = true
	}
	return cfg, cfg.validate()
}

func (c *Config) setParam(name string, values []string) error {
	var target *string
	switch name {
	case paramRegion:
		target = &c.Region
	case paramEndpoint:
		target = &c.Endpoint
	case paramProfile:
		target = &c.Profile
	case paramPathStyle:
	default:
		if secretPattern.MatchString(name) {
			return fmt.Errorf("journal URL carries what looks like a secret (parameter %q); remove it, and give credentials by AWS_PROFILE, by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or by ?profile=NAME", name)
		}
		return fmt.Errorf("journal URL has an unknown parameter %q; known are region, endpoint, path-style and profile", name)
	}
	if len(values) != 1 || values[0] == "" {
		return fmt.Errorf("journal URL must give %s once, with a value", name)
	}
	if target != nil {
		*target = values[0]
		return nil
	}
	on, err := strconv.ParseBool(values[0])
	if err != nil {
		return fmt.Errorf("journal URL has path-style=%q; want true or false", values[0])
	}
	c.PathStyle = on
	return nil
}

// validate checks what can be checked without the store.
func (c Config) validate() error {
	if !bucketPattern.MatchString(c.Bucket) {
		return fmt.Errorf("bucket name %q is not valid; a name has 3 to 63 of a-z, 0-9, dot and hyphen", c.Bucket)
	}
	if err := c.prefix().Validate(); err != nil {
		return err
	}
	if c.Region != "" && !regionPattern.MatchString(c.Region) {
		return fmt.Errorf("region %q is not valid; a region is like eu-west-1", c.Region)
	}
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fmt.Errorf("endpoint is not valid; want http://host:port or https://host")
	case u.User != nil:
		return fmt.Errorf("endpoint carries credentials; remove them, and give them by AWS_PROFILE, by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or by ?profile=NAME")
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "", u.Opaque != "":
		return fmt.Errorf("endpoint %q has more than a host; want http://host:port or https://host", u.Redacted())
	}
	return nil
}

// URL is the journal URL that ParseURL reads back. It holds no secret:
// Credentials are left out.
func (c Config) URL() *url.URL {
	u := &url.URL{Scheme: "s3", Host: c.Bucket}
	u.Path = c.prefix().Below("")
	query := url.Values{}
	for name, value := range map[string]string{paramRegion: c.Region, paramEndpoint: c.Endpoint, paramProfile: c.Profile} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if c.PathStyle != (c.Endpoint != "") {
		query.Set(paramPathStyle, strconv.FormatBool(c.PathStyle))
	}
	u.RawQuery = query.Encode()
	return u
}

// store names the store for messages.
func (c Config) store() string {
	return cmp.Or(c.Endpoint, "AWS region "+c.Region)
}

// Location is where the objects are, as people write it: s3://bucket/prefix.
func (c Config) Location() string { return c.prefix().Below("s3://" + c.Bucket) }

func (c Config) prefix() bucket.Prefix { return bucket.Prefix(c.Prefix) }
