package s3bucket

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// kinds are the errors that a status of HTTP stands for.
var kinds = map[int]error{
	http.StatusPreconditionFailed: bucket.ErrExists,
	http.StatusConflict:           bucket.ErrConflict,
	http.StatusForbidden:          bucket.ErrDenied,
	http.StatusNotImplemented:     bucket.ErrNotImplemented,
}

// passing says whether the trouble may pass by itself: no answer came, or one
// that puts the blame on the store.
func passing(err error) bool {
	switch codeOf(err) {
	case "RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted":
		return true
	}
	status := statusOf(err)
	return codeOf(err) == "" || // no answer, or one that was garbled
		status >= 500 && status != http.StatusNotImplemented ||
		status == http.StatusTooManyRequests || status == http.StatusConflict
}

// answered makes of the SDK's error about the objects of that name one that says what
// happened, to what, and what to do. If an object is not there, that is ErrAbsent; if a request was cut
// off because the caller's context ended or the bucket was closed, it is the
// error of that.
func (s *Store) answered(ctx context.Context, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case codeOf(err) == "NoSuchKey":
		return bucket.ErrAbsent
	case statusOf(err) == 0 && ctx.Err() != nil:
		if err = bucket.Ended(ctx); !errors.Is(err, bucket.ErrTimeout) {
			return err
		}
	}
	return bucket.Failure(kinds[statusOf(err)], passing(err), err, s.cfg.explain(name, err))
}

// statusOf is the HTTP status of the answer, 0 if none came.
func statusOf(err error) int {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil {
		return answer.HTTPStatusCode()
	}
	return 0
}

// codeOf is S3's error code, "" if none came.
func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}
