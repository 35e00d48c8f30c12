package awspolicy_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/xbernetes/xbernetes/internal/awspolicy"
)

// request is what AWS judges: an action on a resource, and what else it knows of the
// request.
type request struct {
	Action   string            `json:"action"`
	Resource string            `json:"resource"` // an ARN
	Context  map[string]string `json:"context,omitempty"`
}

// settingsOf are the actions by which a bucket's settings are read, by the name of the
// query's parameter.
var settingsOf = map[string]string{
	"object-lock": "s3:GetBucketObjectLockConfiguration",
	"versioning":  "s3:GetBucketVersioning",
	"lifecycle":   "s3:GetLifecycleConfiguration",
}

// ofHTTP is the request of IAM that a request to S3, with the bucket in its path, makes.
func ofHTTP(r *http.Request) request {
	path, query := strings.TrimPrefix(r.URL.Path, "/"), r.URL.Query()
	bucket, key, _ := strings.Cut(path, "/")
	arn := "arn:aws:s3:::" + bucket
	if key == "" {
		for parameter, action := range settingsOf {
			if query.Has(parameter) {
				return request{Action: action, Resource: arn}
			}
		}
		return list(arn, query)
	}
	out := request{Resource: arn + "/" + key}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		out.Action = "s3:GetObject"
	case http.MethodDelete:
		out.Action = "s3:DeleteObject"
	case http.MethodPut:
		out.Action = "s3:PutObject"
		if v := r.Header.Get("If-None-Match"); v != "" {
			out.Context = map[string]string{"s3:if-none-match": v}
		}
	}
	return out
}

func list(arn string, query url.Values) request {
	out := request{Action: "s3:ListBucket", Resource: arn}
	if query.Has("prefix") {
		out.Context = map[string]string{"s3:prefix": query.Get("prefix")}
	}
	return out
}

// like says whether s is what pattern, with * for anything, stands for.
func like(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(s)
}

// about returns the patterns of the statement's resources that r matches; none if the
// statement says nothing of r.
func about(s awspolicy.Statement, r request) (patterns []string) {
	if !slices.ContainsFunc(s.Action, func(a string) bool { return like(a, r.Action) }) {
		return nil
	}
	for operator, keys := range s.Condition {
		for key, values := range keys {
			given, is := r.Context[key]
			if key == "aws:SecureTransport" && !is {
				given, is = "true", true
			}
			ok := false
			switch operator {
			case "Null":
				ok = values[0] == "true" != is
			case "StringLike", "ArnLike":
				ok = is && slices.ContainsFunc(values, func(v string) bool { return like(v, given) })
			case "StringEquals", "ArnEquals", "Bool":
				ok = is && slices.Contains(values, given)
			default:
				panic("the test does not know the operator " + operator)
			}
			if !ok {
				return nil
			}
		}
	}
	for _, pattern := range s.Resource {
		if like(pattern, r.Resource) {
			patterns = append(patterns, pattern)
		}
	}
	return patterns
}

// verdict judges r as AWS does, whoever asks.
func verdict(r request, documents ...awspolicy.Document) (allowed bool) {
	for _, d := range documents {
		for _, s := range d.Statement {
			if len(about(s, r)) == 0 {
				continue
			}
			if s.Effect == "Deny" {
				return false
			}
			allowed = true
		}
	}
	return allowed
}

var numbers = regexp.MustCompile("[0-9a-f]{16,}|[A-Z2-7]{26}")

// shape is r without the numbers and hashes in names, which the policies do not tell apart.
func (r request) shape() string { return numbers.ReplaceAllString(r.text(), "N") }

// text is r in one line, for messages.
func (r request) text() string {
	out, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(out)
}
