package gcslog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"cloud.google.com/go/auth"
	"google.golang.org/api/googleapi"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// absent is answered for a request about an object that may not be there. If the
// bucket is not there, a List says so: this answer does not always.
func (s *store) absent(ctx context.Context, err error) error {
	if statusOf(err) == http.StatusNotFound && !noBucket(err) {
		return bucket.ErrAbsent
	}
	return s.answered(ctx, err)
}

// answered makes of the SDK's error one that says what happened, to what, and
// what to do. If a request was cut off because the caller's context ended or the
// bucket was closed, it is the error of that.
func (s *store) answered(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case statusOf(err) == 0 && ctx.Err() != nil:
		if err = bucket.Ended(ctx); !errors.Is(err, bucket.ErrTimeout) {
			return err
		}
	}
	return bucket.Failure(kindOf(err), passing(err), err, s.cfg.explain(err))
}

// kindOf is what the answer means. A 409 is none of the kinds, because Google does
// not promise that nothing was stored.
func kindOf(err error) error {
	switch {
	case statusOf(err) == http.StatusPreconditionFailed:
		return bucket.ErrExists
	case statusOf(err) == http.StatusNotImplemented:
		return bucket.ErrNotImplemented
	case statusOf(err) == http.StatusForbidden && !limited(err):
		return bucket.ErrDenied
	}
	return nil
}

// passing says whether the trouble may pass by itself: no answer came, or one
// that puts the blame on the store, or on how much it was asked.
func passing(err error) bool {
	var token *auth.Error
	if errors.As(err, &token) && token.Response != nil {
		return token.Response.StatusCode >= 500
	}
	switch status := statusOf(err); status {
	case 0, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	default:
		return limited(err) || status >= 500 && status != http.StatusNotImplemented
	}
}

// limited says whether a request was refused because there were too many.
func limited(err error) bool {
	return strings.HasSuffix(reasonOf(err), "ateLimitExceeded") // rateLimitExceeded, userRateLimitExceeded
}

// noBucket says whether a 404 is about the bucket.
func noBucket(err error) bool {
	var answer *googleapi.Error
	return errors.As(err, &answer) && strings.Contains(answer.Message+answer.Body, "bucket does not exist")
}

// statusOf is the HTTP status of the answer, 0 if none came.
func statusOf(err error) int {
	var answer *googleapi.Error
	if errors.As(err, &answer) {
		return answer.Code
	}
	return 0
}

// explain says in one sentence what the store's answer means, and what to do.
func (c Config) explain(err error) string {
	var token *auth.Error
	if errors.As(err, &token) {
		return fmt.Sprintf("no token could be had with the credentials for %s; give others by %s", c.store(), credentialsAre)
	}
	status := statusOf(err)
	switch {
	case status == 0:
		return bucket.Silence{Store: c.store(), Kind: "Google Cloud Storage", Where: "endpoint", CA: "SSL_CERT_FILE"}.Explain(err)
	case status == http.StatusNotFound:
		return fmt.Sprintf("bucket %q does not exist at %s; create it, or correct --journal", c.Bucket, c.store())
	case status == http.StatusUnauthorized:
		return fmt.Sprintf("%s does not accept the credentials; give others by %s", c.store(), credentialsAre)
	case limited(err), status == http.StatusTooManyRequests:
		return fmt.Sprintf("%s answered that it is asked too often (%d); try again", c.store(), status)
	case status == http.StatusForbidden && reasonOf(err) == "retentionPolicyNotMet", reasonOf(err) == "objectUnderActiveHold":
		return fmt.Sprintf("bucket %q keeps its objects for a time (%s), and a journal must be able to delete; remove the bucket's retention policy and holds", c.Bucket, reasonOf(err))
	case status == http.StatusForbidden:
		return fmt.Sprintf("access to %s is denied by %s; allow these credentials storage.objects.get, storage.objects.list and storage.objects.create", c.location(), c.store())
	case status == http.StatusNotImplemented:
		return fmt.Sprintf("%s does not implement a request that a journal needs (501); use a store with ifGenerationMatch", c.store())
	case status >= 500:
		return fmt.Sprintf("%s answered %d %s; the store is overloaded or in trouble, try again", c.store(), status, reasonOf(err))
	}
	return fmt.Sprintf("%s answered %d %s; check --journal", c.store(), status, reasonOf(err))
}

// reasonOf is the store's word for an error, "" if it gave none. The SDK reads it for
// all requests but downloads.
func reasonOf(err error) string {
	var answer *googleapi.Error
	if !errors.As(err, &answer) {
		return ""
	}
	items := answer.Errors
	if len(items) == 0 {
		var body struct {
			Error struct{ Errors []googleapi.ErrorItem }
		}
		if json.Unmarshal([]byte(answer.Body), &body) != nil {
			return ""
		}
		items = body.Error.Errors
	}
	if len(items) == 0 {
		return ""
	}
	return items[0].Reason
}
