package s3log

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/xbernetes/xbernetes/internal/journal"
)

// defaultRequestTimeout is Config.RequestTimeout where it is zero.
const defaultRequestTimeout = 5 * time.Second

// Open opens the journal at cfg, and creates it where there is none, unless
// cfg is read-only. Of several processes that create it at once, all get the
// same one. A store whose conditional PUT is not safe is refused: it is tried
// first, on keys under probe/. After an error nothing is left in the bucket
// that was not there, other than such a key where deleting it is denied.
//
// Errors: one sentence that names the thing and what to do. A journal of a
// newer format is journal.ErrNewerFormat.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	l, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", cfg.location(), err)
	}
	if err := l.open(ctx); err != nil {
		l.conns.CloseIdleConnections()
		return nil, fmt.Errorf("open journal %s: %w", cfg.location(), err)
	}
	return l, nil
}

// connect makes a client for the store. It sends nothing to it.
func connect(ctx context.Context, cfg Config) (*Log, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = defaultRequestTimeout
	}
	if cfg.Region == "" && cfg.Endpoint != "" {
		cfg.Region = "us-east-1"
	}
	sdk, err := sdkConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	cfg.Region = sdk.Region
	if cfg.Region == "" {
		return nil, fmt.Errorf("the region of bucket %q is not known; write region=REGION in --journal, or set AWS_REGION", cfg.Bucket)
	}
	if sdk.Credentials == nil {
		return nil, errors.New("no credentials; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	if _, err := sdk.Credentials.Retrieve(ctx); err != nil {
		return nil, &refusal{cause: err, sentence: fmt.Sprintf("no credentials for %s (%v); set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with ?profile=NAME in --journal", cfg.place(), rootOf(err))}
	}
	conns := transport(sdk)
	l := &Log{cfg: cfg, conns: conns, ends: newEnds(depth), spans: realSpans}
	l.client = s3.NewFromConfig(sdk, func(o *s3.Options) {
		o.UsePathStyle = cfg.PathStyle
		o.HTTPClient = &http.Client{Transport: onlyStores{conns}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		o.Retryer = aws.NopRetryer{} // what is repeated, and when, is decided here
		// A machine whose clock stood still must not sign as if it had not: the
		// store refuses what was signed long ago.
		o.DisableClockSkewCorrection = true
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.ContinueHeaderThresholdBytes = -1 // one round trip a PUT
		if cfg.Endpoint != "" {
			o.BaseEndpoint = &cfg.Endpoint
		}
	})
	l.life, l.end = context.WithCancelCause(context.Background())
	return l, nil
}

// sdkConfig finds credentials and region. The instance metadata service is
// asked only where the store is AWS and nothing else was said.
func sdkConfig(ctx context.Context, cfg Config) (aws.Config, error) {
	if cfg.Credentials != nil {
		return aws.Config{Region: cfg.Region, Credentials: aws.NewCredentialsCache(cfg.Credentials), Logger: logging.Nop{}}, nil
	}
	options := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})}
	if cfg.Region != "" {
		options = append(options, config.WithRegion(cfg.Region))
	}
	if cfg.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(cfg.Profile))
	}
	if cfg.Endpoint != "" {
		options = append(options, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	}
	sdk, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("read the AWS configuration: %w", err)
	}
	return sdk, nil
}

// transport is the SDK's own, with a CA from the environment if one was
// given, and room to keep a window of connections open.
func transport(sdk aws.Config) *http.Transport {
	client, ok := sdk.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		client = awshttp.NewBuildableClient()
	}
	conns := client.GetTransport()
	conns.MaxIdleConns = 4 * maxWindow
	conns.MaxIdleConnsPerHost = 2 * maxWindow
	return conns
}

// open finds or creates the journal's meta.json.
func (l *Log) open(ctx context.Context) error {
	id, err := l.readMeta(ctx)
	switch {
	case errors.Is(err, errAbsent) && l.cfg.ReadOnly:
		return fmt.Errorf("there is no journal at %s; correct --journal", l.cfg.location())
	case errors.Is(err, errAbsent):
		id, err = l.create(ctx)
	case err == nil && !l.cfg.ReadOnly:
		err = l.probe(ctx)
	}
	if err != nil {
		return err
	}
	l.info = journal.Info{ID: id, MaxRecord: maxRecord, Depth: depth}
	return nil
}

// meta is the content of meta.json.
type meta struct {
	Format  int       `json:"format"`
	Journal string    `json:"journal"`
	Created time.Time `json:"created"`
}

func (l *Log) readMeta(ctx context.Context) (journal.ID, error) {
	var data []byte
	var at time.Time
	err := l.again(ctx, func() (err error) {
		data, at, err = l.get(ctx, metaName, 1<<20)
		return err
	})
	if err != nil {
		return journal.ID{}, err
	}
	if at.IsZero() {
		return journal.ID{}, l.undated()
	}
	return decodeMeta(data)
}

// errOldFormat: no release wrote such a journal.
var errOldFormat = errors.New("journal has an older format")

func decodeMeta(data []byte) (journal.ID, error) {
	var m meta
	var id journal.ID
	err := json.Unmarshal(data, &m)
	if err == nil && m.Format > journal.FormatVersion {
		return id, fmt.Errorf("%w (%d; this xb reads up to %d); use the xb that wrote it, or a newer one", journal.ErrNewerFormat, m.Format, journal.FormatVersion)
	}
	raw, hexErr := hex.DecodeString(m.Journal)
	if err != nil || hexErr != nil || len(raw) != len(id) || m.Format < 1 {
		return id, fmt.Errorf("%s does not describe a journal; restore it from a backup or an older version of the object: %w", metaName, journal.ErrCorrupt)
	}
	if m.Format < journal.FormatVersion {
		// Its floor was one object that was replaced: unseen, it would make empty
		// slots of trimmed ones.
		return id, fmt.Errorf("%w (%d; this xb reads %d); start a new journal", errOldFormat, m.Format, journal.FormatVersion)
	}
	copy(id[:], raw)
	return id, nil
}

// create writes meta.json, or takes the one that another process wrote first.
func (l *Log) create(ctx context.Context) (journal.ID, error) {
	var out *s3.ListObjectsV2Output
	err := l.again(ctx, func() (err error) {
		out, err = l.list(ctx, slotPrefix, "", nil, 1)
		return err
	})
	if err != nil {
		return journal.ID{}, err
	}
	if len(out.Contents) > 0 {
		return journal.ID{}, fmt.Errorf("there are slots but no %s; restore it from a backup or an older version of the object, or choose another prefix", metaName)
	}
	if err := l.probe(ctx); err != nil {
		return journal.ID{}, err
	}
	var id journal.ID
	_, _ = rand.Read(id[:]) // never fails
	data, err := json.Marshal(meta{Format: journal.FormatVersion, Journal: id.String(), Created: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return journal.ID{}, fmt.Errorf("encode %s: %w", metaName, err)
	}
	err = l.again(ctx, func() error {
		_, err := l.put(ctx, metaName, data, ifAbsent)
		if statusOf(err) == http.StatusPreconditionFailed {
			return nil // by another process, or by a PUT of ours that seemed to fail
		}
		return err
	})
	if err != nil {
		return journal.ID{}, err
	}
	return l.readMeta(ctx)
}
