package s3bucket

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// explain says in one sentence what the store's answer to a request about the objects of
// that name means, and what to do.
func (c Config) explain(name string, err error) string {
	switch status := statusOf(err); {
	case status == http.StatusForbidden && codeOf(err) == "AccessDenied":
		return c.explainDenial(name, err)
	case status != 0:
		return c.explainAnswer(status, codeOf(err), err)
	}
	return bucket.Silence{Store: c.store(), Kind: "S3 store", Where: "endpoint or region", CA: "AWS_CA_BUNDLE"}.Explain(err)
}

// explainAnswer explains an answer that is an error.
func (c Config) explainAnswer(status int, code string, err error) string {
	switch code {
	case "NoSuchBucket":
		return fmt.Sprintf("bucket %q does not exist at %s; create it, or correct --journal", c.Bucket, c.store())
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId":
		return fmt.Sprintf("%s does not accept the credentials (%s); correct AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with ?profile=NAME in --journal", c.store(), code)
	case "ExpiredToken", "TokenRefreshRequired":
		return fmt.Sprintf("%s does not accept the credentials (%s): they have expired; renew them, as by aws sso login, or use a role of the machine, which renews them itself", c.store(), code)
	case "RequestTimeTooSkewed":
		return fmt.Sprintf("the clock of this machine differs too much from that of %s; set the clock", c.store())
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException", "TemporaryRedirect":
		return c.explainRegion(err)
	}
	switch {
	case status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect:
		return c.explainRegion(err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Sprintf("access to %s is denied by %s; xb aws policy prints the rights that these credentials need", c.Location(), c.store())
	case status == http.StatusNotImplemented:
		return fmt.Sprintf("%s does not implement a request that a journal needs (501 %s); use a store with conditional PUTs (If-None-Match)", c.store(), code)
	case status == http.StatusInsufficientStorage:
		return fmt.Sprintf("%s has no room left (507 %s); make room there", c.store(), code)
	case status >= 500 || status == http.StatusTooManyRequests:
		return fmt.Sprintf("%s answered %d %s; the store is overloaded or in trouble, try again", c.store(), status, code)
	case code == "":
		return fmt.Sprintf("%s answered %d and nothing that S3 would say; check that the endpoint is an S3 store", c.store(), status)
	}
	return fmt.Sprintf("%s answered %d %s: %s; check --journal", c.store(), status, code, messageOf(err))
}

// actions are the rights that requests need, by the SDK's names of the requests.
var actions = map[string]string{"GetObject": "s3:GetObject", "PutObject": "s3:PutObject", "DeleteObject": "s3:DeleteObject", "ListObjectsV2": "s3:ListBucket"}

// explainDenial names the right that is missing.
func (c Config) explainDenial(name string, err error) string {
	var request *smithy.OperationError
	right := ""
	if errors.As(err, &request) {
		right = actions[request.Operation()]
	}
	what := right + " on " + c.Location() + "/" + name
	switch right {
	case "s3:ListBucket":
		what = fmt.Sprintf("s3:ListBucket on the bucket %s for the names that begin with %s", c.Bucket, bucket.Prefix(c.Prefix).Key(name))
	case "s3:GetObject":
		what += fmt.Sprintf(", or, if there is no such object, s3:ListBucket on the bucket %s", c.Bucket)
	}
	return fmt.Sprintf("access to %s is denied by %s: these credentials lack %s; xb aws policy prints the rights that they need", c.Location(), c.store(), what)
}

func (c Config) explainRegion(err error) string {
	var answer *smithyhttp.ResponseError
	hint := "correct region in --journal"
	if errors.As(err, &answer) {
		if region := answer.Response.Header.Get("x-amz-bucket-region"); regionPattern.MatchString(region) {
			hint = fmt.Sprintf("write region=%s in --journal", region)
		}
	}
	return fmt.Sprintf("bucket %q is not in the region %s that was asked for; %s", c.Bucket, c.Region, hint)
}

func messageOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorMessage() != "" {
		return api.ErrorMessage()
	}
	return bucket.Root(err).Error()
}
