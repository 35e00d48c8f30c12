package bucket

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// explain says in one sentence what the store's answer means, and what to do.
func (c Config) explain(err error) string {
	if status := statusOf(err); status != 0 {
		return c.explainAnswer(status, codeOf(err), err)
	}
	return c.explainSilence(err)
}

// explainAnswer explains an answer that is an error.
func (c Config) explainAnswer(status int, code string, err error) string {
	switch code {
	case "NoSuchBucket":
		return fmt.Sprintf("bucket %q does not exist at %s; create it, or correct --journal", c.Bucket, c.store())
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired", "InvalidClientTokenId":
		return fmt.Sprintf("%s does not accept the credentials (%s); correct AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with ?profile=NAME in --journal", c.store(), code)
	case "RequestTimeTooSkewed":
		return fmt.Sprintf("the clock of this machine differs too much from that of %s; set the clock", c.store())
	case "AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException", "TemporaryRedirect":
		return c.explainRegion(err)
	}
	switch {
	case status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect:
		return c.explainRegion(err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Sprintf("access to %s is denied by %s; allow these credentials s3:GetObject and s3:PutObject on the prefix, and s3:ListBucket on the bucket (without it, a slot that is empty looks like a denial)", c.Location(), c.store())
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

// explainSilence explains a request that got no answer.
func (c Config) explainSilence(err error) string {
	var (
		dns     *net.DNSError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
		other   *strangerError
	)
	switch {
	case errors.As(err, &other):
		return fmt.Sprintf("%s is no S3 store: %s; check that the endpoint in --journal is that of an S3 store, and that no proxy or sign-in page stands between", c.store(), other.what)
	case errors.Is(err, errTimeout):
		return fmt.Sprintf("%s did not answer within the time-out; check the network and the endpoint", c.store())
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("%s refuses connections; check that the store runs, and the endpoint in --journal", c.store())
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %q of the store cannot be resolved; check the endpoint or region in --journal, and the network", dns.Name)
	case errors.As(err, &unknown), errors.As(err, &invalid), errors.As(err, &host):
		return fmt.Sprintf("the certificate of %s is not trusted (%v); give its CA by AWS_CA_BUNDLE, or correct the endpoint", c.store(), rootOf(err))
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return fmt.Sprintf("%s speaks http, not https; write http:// in the endpoint", c.store())
	}
	return fmt.Sprintf("%s cannot be reached: %v; check the network and the endpoint", c.store(), rootOf(err))
}

// Location is where the objects are, as people write it: s3://bucket/prefix.
func (c Config) Location() string {
	if c.Prefix == "" {
		return "s3://" + c.Bucket
	}
	return "s3://" + c.Bucket + "/" + c.Prefix
}

func messageOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) && api.ErrorMessage() != "" {
		return api.ErrorMessage()
	}
	return rootOf(err).Error()
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
