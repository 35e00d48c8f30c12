// Package s3bucket sends requests for the objects below one prefix of an S3
// bucket, and tells what the store's answers mean. It never knows what the
// objects are for.
package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// idleConns is how many connections to the store are kept open for later
// requests: room for those that a caller sends at once.
const idleConns = 128

// Store is the part of an S3 bucket below one prefix.
type Store struct {
	cfg     Config // complete and valid
	prefix  bucket.Prefix
	timeout bucket.Timeout
	client  *s3.Client
	conns   *http.Transport
}

var _ bucket.Store = (*Store)(nil)

// Open makes a client for the store. It sends nothing to it. The error is one
// sentence that names what is wrong and what to do.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
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
		return nil, bucket.Explained(err, fmt.Sprintf("no credentials for %s (%v); set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with ?profile=NAME in --journal", cfg.store(), bucket.Root(err)))
	}
	conns := transport(sdk)
	return &Store{cfg, cfg.prefix(), bucket.Timeout(cfg.RequestTimeout), newClient(sdk, cfg, conns), conns}, nil
}

// newClient makes the SDK's client, without what the SDK would do by itself.
func newClient(sdk aws.Config, cfg Config, conns *http.Transport) *s3.Client {
	return s3.NewFromConfig(sdk, func(o *s3.Options) {
		o.UsePathStyle = cfg.PathStyle
		o.HTTPClient = &http.Client{Transport: bucket.OnlyStores{RoundTripper: conns, Lacks: lacks}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		o.Retryer = aws.NopRetryer{} // the caller decides what is repeated, and when
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
// given, and room to keep connections open.
func transport(sdk aws.Config) *http.Transport {
	client, ok := sdk.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		client = awshttp.NewBuildableClient()
	}
	conns := client.GetTransport()
	conns.MaxIdleConns = 2 * idleConns
	conns.MaxIdleConnsPerHost = idleConns
	return conns
}

// Names implements bucket.Store.
func (s *Store) Names() bucket.Names {
	return bucket.Names{Location: s.cfg.Location(), Store: s.cfg.store(), Create: "PUT with If-None-Match: *", Delete: "s3:DeleteObject"}
}

// Close implements bucket.Store.
func (s *Store) Close() { s.conns.CloseIdleConnections() }

// lacks says what a success lacks that S3 always sends.
func lacks(r *http.Request, resp *http.Response) string {
	query := r.URL.Query()
	ofBucket := query.Has("list-type") || query.Has("lifecycle") || query.Has("versioning") || query.Has("object-lock")
	ofObject := r.Method == http.MethodPut || r.Method == http.MethodGet && !ofBucket
	if ofObject && resp.Header.Get("ETag") == "" {
		return "an ETag"
	}
	return ""
}
