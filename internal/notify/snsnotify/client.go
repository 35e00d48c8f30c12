package snsnotify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
)

const (
	// maxAnswer is the longest answer that is read, in bytes: ten messages of the
	// longest kind that SQS has take less.
	maxAnswer = 16 << 20
	// answering is how long a request may take: more than the longest poll.
	answering = (longPoll + 15) * time.Second
)

// sdkConfig finds credentials. The instance metadata service is asked only where the
// service is AWS.
func sdkConfig(ctx context.Context, cfg *Config) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{
		config.WithLogger(logging.Nop{}), config.WithRegion(cfg.queueRegion()),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }), // notify.Trouble paces what is repeated
	}
	if cfg.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(cfg.Credentials))
	}
	if cfg.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(cfg.Profile))
	}
	if cfg.Endpoint != "" {
		options = append(options, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	}
	sdk, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("read the AWS configuration for notifications: %w", err)
	}
	client, ok := sdk.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		client = awshttp.NewBuildableClient()
	}
	sdk.HTTPClient = &http.Client{
		Transport: bounded{client.GetTransport()}, Timeout: answering,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return sdk, nil
}

func newTopic(sdk aws.Config, region, endpoint string) *sns.Client {
	return sns.NewFromConfig(sdk, func(o *sns.Options) {
		o.Region = region
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	})
}

func newQueue(sdk aws.Config, region, endpoint string) *sqs.Client {
	return sqs.NewFromConfig(sdk, func(o *sqs.Options) {
		o.Region = region
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	})
}

// bounded reads no more of an answer than maxAnswer.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = limitedBody{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	}
	return answer, err
}

type limitedBody struct {
	io.Reader
	io.Closer
}

// The kinds of failures that callers tell apart.
var (
	errDenied = errors.New("denied")
	errGone   = errors.New("it does not exist")
)

func isDenied(err error) bool { return errors.Is(err, errDenied) }

func isGone(err error) bool { return errors.Is(explain(err, "", ""), errGone) }

// explain says in one sentence what a failed action means, and what to do.
func explain(err error, action, resource string) error {
	var api smithy.APIError
	if err == nil || errors.Is(err, errDenied) || errors.Is(err, errGone) {
		return err
	}
	if !errors.As(err, &api) {
		return fmt.Errorf("%s on %s: no answer: %w", action, resource, rootOf(err))
	}
	switch code := api.ErrorCode(); code {
	case "AccessDenied", "AccessDeniedException", "AuthorizationError", "AuthorizationErrorException":
		return fmt.Errorf("%s on %s is %w; allow these credentials that action", action, resource, errDenied)
	case "InvalidClientTokenId", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSignatureException", "UnrecognizedClientException", "ExpiredToken", "ExpiredTokenException", "InvalidSecurity", "InvalidToken":
		return fmt.Errorf("%s on %s: AWS does not accept the credentials (%s); correct AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the clock", action, resource, code)
	case "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NotFound", "NotFoundException":
		return fmt.Errorf("%s on %s: %w; correct --notify, or create it again", action, resource, errGone)
	default:
		return fmt.Errorf("%s on %s: %s: %.200q", action, resource, code, api.ErrorMessage())
	}
}

// rootOf is the innermost error: what happened, without the calls that led to it.
func rootOf(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
