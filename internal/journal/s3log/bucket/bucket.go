// Package bucket sends requests for the objects below one prefix of an S3
// bucket, and tells what the store's answers mean. It never knows what the
// objects are for.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
)

const (
	// defaultRequestTimeout is Config.RequestTimeout where it is zero.
	defaultRequestTimeout = 5 * time.Second
	// idleConns is how many connections to the store are kept open for later
	// requests: room for those that a caller sends at once.
	idleConns = 128
)

// Bucket is the part of a bucket below one prefix. Its methods are safe for
// concurrent use. Each request is sent once; Again repeats it.
type Bucket struct {
	cfg    Config // complete and valid
	client *s3.Client
	conns  *http.Transport

	life context.Context // ends when Close is called
	end  context.CancelCauseFunc
	// mu orders Begin before Close or after it. Invariant: calls is added to
	// under mu only, and only while life goes on.
	mu    sync.Mutex
	calls sync.WaitGroup // between Begin and done
}

// Open makes a client for the store. It sends nothing to it. The error is one
// sentence that names what is wrong and what to do.
func Open(ctx context.Context, cfg Config) (*Bucket, error) {
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
		return nil, Explained(err, fmt.Sprintf("no credentials for %s (%v); set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with ?profile=NAME in --journal", cfg.store(), rootOf(err)))
	}
	b := &Bucket{cfg: cfg, conns: transport(sdk)}
	b.client = newClient(sdk, cfg, b.conns)
	b.life, b.end = context.WithCancelCause(context.Background())
	return b, nil
}

// newClient makes the SDK's client, without what the SDK would do by itself.
func newClient(sdk aws.Config, cfg Config, conns *http.Transport) *s3.Client {
	return s3.NewFromConfig(sdk, func(o *s3.Options) {
		o.UsePathStyle = cfg.PathStyle
		o.HTTPClient = &http.Client{Transport: onlyStores{conns}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
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

// Location is the prefix as people write it: s3://bucket/prefix.
func (b *Bucket) Location() string { return b.cfg.Location() }

// Store names the store for messages: its endpoint or its region.
func (b *Bucket) Store() string { return b.cfg.store() }

// Begin starts a call of the user, which may send several requests. The
// context that it returns also ends when the bucket is closed; done must be
// called at the end. The error is ErrClosed, or that of ctx if it has ended.
func (b *Bucket) Begin(ctx context.Context) (_ context.Context, done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.Err() != nil {
		return nil, nil, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	b.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(b.life, func() { cancel(errClosing) })
	return ctx, func() {
		unlink()
		cancel(nil)
		b.calls.Done()
	}, nil
}

// Close ends the calls in flight, waits for them, and closes the connections to
// the store.
func (b *Bucket) Close() {
	b.mu.Lock()
	b.end(errClosing)
	b.mu.Unlock()
	b.calls.Wait()
	b.conns.CloseIdleConnections()
}
