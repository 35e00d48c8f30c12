package azurelog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// absent is answered for a request about a blob that may not be there.
func (s *store) absent(ctx context.Context, err error) error {
	if statusOf(err) == http.StatusNotFound && !bloberror.HasCode(err, noContainer...) {
		return bucket.ErrAbsent
	}
	return s.answered(ctx, err)
}

// answered makes of the SDK's error one that says what happened, to what, and
// what to do. If a request was cut off because the caller's context ended or the
// container was closed, it is the error of that.
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

var (
	noContainer = []bloberror.Code{bloberror.ContainerNotFound, bloberror.ContainerBeingDeleted, bloberror.ContainerDisabled, bloberror.ResourceNotFound}
	immutable   = []bloberror.Code{bloberror.BlobImmutableDueToPolicy, bloberror.ImmutabilityPolicyDeleteOnLockedPolicy}
	// strange are answers with 403 to credentials that the store does not accept at all.
	strange = []bloberror.Code{bloberror.AuthenticationFailed, bloberror.InvalidAuthenticationInfo, bloberror.NoAuthenticationInformation}
)

// kindOf is what the answer means.
func kindOf(err error) error {
	switch {
	case bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet, bloberror.UnauthorizedBlobOverwrite):
		return bucket.ErrExists
	case statusOf(err) == http.StatusNotImplemented:
		return bucket.ErrNotImplemented
	case statusOf(err) == http.StatusForbidden && !bloberror.HasCode(err, strange...):
		return bucket.ErrDenied
	}
	return nil
}

// passing says whether the trouble may pass by itself: no answer came, or one
// that puts the blame on the store, or on how much it was asked.
func passing(err error) bool {
	var token *tokenError
	if errors.As(err, &token) {
		return token.passing()
	}
	switch status := statusOf(err); status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		return status >= 500 && status != http.StatusNotImplemented
	}
}

// statusOf is the HTTP status of the answer, 0 if none came.
func statusOf(err error) int {
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// codeOf is the store's word for an error, "" if it gave none.
func codeOf(err error) string {
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		return answer.ErrorCode
	}
	return ""
}

// dateOfError is when the store answered with an error, by its own clock. Zero if it did
// not say.
func dateOfError(err error) time.Time {
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) || answer.RawResponse == nil {
		return time.Time{}
	}
	return bucket.Date(answer.RawResponse.Header)
}

// explain says in one sentence what the store's answer means, and what to do.
func (c Config) explain(err error) string {
	var token *tokenError
	status, code := statusOf(err), codeOf(err)
	switch {
	case errors.As(err, &token):
		return fmt.Sprintf("no token could be had for %s; give credentials by %s", c.store(), credentialsAre)
	case status == 0:
		return bucket.Silence{Store: c.store(), Kind: "Azure Blob Storage", Where: "storage account or endpoint", CA: "SSL_CERT_FILE"}.Explain(err)
	case bloberror.HasCode(err, bloberror.ContainerBeingDeleted, bloberror.ContainerDisabled):
		return fmt.Sprintf("container %q is being deleted or is disabled (%s); create it once it is gone, or correct --journal", c.Container, code)
	case status == http.StatusNotFound:
		return fmt.Sprintf("container %q does not exist at %s; create it, or correct --journal", c.Container, c.store())
	case status == http.StatusUnauthorized, status == http.StatusForbidden && bloberror.HasCode(err, strange...):
		return fmt.Sprintf("%s does not accept the credentials (%s); give others by %s, and check the clock of this machine", c.store(), code, credentialsAre)
	case bloberror.HasCode(err, immutable...):
		return fmt.Sprintf("container %q keeps its blobs for a time (%s), and a journal must be able to delete; remove its immutability policies and legal holds", c.Container, code)
	case status == http.StatusForbidden:
		return fmt.Sprintf("access to %s is denied by %s (%s); allow these credentials to read, list and create blobs, and check the network rules of the storage account", c.location(), c.store(), code)
	case status == http.StatusPreconditionFailed:
		return fmt.Sprintf("%s answered %d %s; remove leases from blobs of the journal", c.store(), status, code)
	case status == http.StatusNotImplemented:
		return fmt.Sprintf("%s does not implement a request that a journal needs (501); use a store with If-None-Match for Put Blob", c.store())
	case status == http.StatusTooManyRequests, status >= 500:
		return fmt.Sprintf("%s answered %d %s; the store is overloaded or in trouble, try again", c.store(), status, code)
	}
	return fmt.Sprintf("%s answered %d %s; check --journal", c.store(), status, code)
}
