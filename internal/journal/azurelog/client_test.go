package azurelog

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/google/go-cmp/cmp"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/buckettest"
)

// base64 of a key that no account has.
const someKey = "aHVudGVyMg=="

// TestCredentials: the environment gives credentials, and does not lead elsewhere than the
// URL. No error repeats a secret.
func TestCredentials(t *testing.T) {
	cfg := Config{Account: "account", Container: "journals"}
	for name, test := range map[string]struct {
		environment map[string]string
		want        string // "": a client
	}{
		"a key":                   {map[string]string{"AZURE_STORAGE_ACCOUNT": "account", "AZURE_STORAGE_KEY": someKey}, ""},
		"a key alone":             {map[string]string{"AZURE_STORAGE_KEY": someKey}, ""},
		"another account's key":   {map[string]string{"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": someKey}, `AZURE_STORAGE_ACCOUNT is "other", and --journal names the storage account "account"`},
		"a key in pieces":         {map[string]string{"AZURE_STORAGE_KEY": "hunter2!"}, "the key in AZURE_STORAGE_KEY is no base64"},
		"a connection string":     {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "AccountName=account;AccountKey=" + someKey}, ""},
		"a signature":             {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "BlobEndpoint=https://account.blob.core.windows.net/;SharedAccessSignature=sig=hunter2"}, ""},
		"a connection elsewhere":  {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "BlobEndpoint=https://evil.example/;SharedAccessSignature=sig=hunter2"}, "leads to https://evil.example/journals, and --journal to https://account.blob.core.windows.net/journals"},
		"no connection string":    {map[string]string{"AZURE_STORAGE_CONNECTION_STRING": "hunter2"}, "AZURE_STORAGE_CONNECTION_STRING is malformed"},
		"what Azure's tools find": {nil, ""},
		"a tenant that cannot be": {map[string]string{"AZURE_TOKEN_CREDENTIALS": "hunter2"}, "no credentials for Azure Blob Storage can be looked for"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING"} {
				t.Setenv(variable, test.environment[variable])
			}
			for variable, value := range test.environment {
				t.Setenv(variable, value)
			}
			_, err := cfg.client(bucket.Connections())
			if test.want == "" && err != nil {
				t.Errorf("client = %v", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2")) {
				t.Errorf("client = %v, want it to say %q and no secret", err, test.want)
			}
		})
	}
}

// TestTokensNeedTLS: without a key, an endpoint in clear text is refused before a token is
// asked for.
func TestTokensNeedTLS(t *testing.T) {
	t.Setenv("AZURE_STORAGE_KEY", "")
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "")
	_, err := Open(t.Context(), Config{Account: "account", Container: "journals", Endpoint: "http://127.0.0.1:1"})
	if err == nil || !strings.Contains(err.Error(), "tokens are sent by https only") {
		t.Errorf("Open = %v", err)
	}
}

// refusal has no token for anybody.
type refusal struct{ err error }

func (r refusal) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, r.err
}

// TestNoToken: if no token can be had, an error says so, and whether that may pass.
func TestNoToken(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		passing bool
	}{
		"no credentials": {azidentity.NewCredentialUnavailableError("nothing found"), false},
		"refused":        {&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 400, Body: http.NoBody}}, false},
		"in trouble":     {&azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: 503, Body: http.NoBody}}, true},
		"out of reach":   {&azidentity.AuthenticationFailedError{}, true},
	} {
		_, err := tokens{refusal{test.err}}.GetToken(t.Context(), policy.TokenRequestOptions{})
		s := &store{cfg: Config{Account: "account", Container: "journals"}}
		if err = s.answered(t.Context(), err); bucket.Passing(err) != test.passing || !strings.Contains(err.Error(), "no token could be had for Azure Blob Storage") {
			t.Errorf("%s: %v, which may pass: %v; want %v", name, err, bucket.Passing(err), test.passing)
		}
	}
}

// TestKinds: what an answer means for the journal.
func TestKinds(t *testing.T) {
	for _, test := range []struct {
		status  int
		code    string
		kind    error
		passing bool
	}{
		{409, "BlobAlreadyExists", bucket.ErrExists, false},
		{412, "ConditionNotMet", bucket.ErrExists, false},
		{403, "UnauthorizedBlobOverwrite", bucket.ErrExists, false},
		{412, "LeaseIdMissing", nil, false},
		{409, "BlobImmutableDueToPolicy", nil, false},
		{403, "AuthorizationPermissionMismatch", bucket.ErrDenied, false},
		{403, "AuthenticationFailed", nil, false},
		{501, "", bucket.ErrNotImplemented, false},
		{500, "OperationTimedOut", nil, true},
		{503, "ServerBusy", nil, true},
		{429, "", nil, true},
		{408, "", nil, true},
	} {
		err := &azcore.ResponseError{StatusCode: test.status, ErrorCode: test.code}
		if kind := kindOf(err); !errors.Is(kind, test.kind) || passing(err) != test.passing {
			t.Errorf("%d %s: %v, may pass: %v; want %v, %v", test.status, test.code, kind, passing(err), test.kind, test.passing)
		}
	}
}

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]Config{
		"azblob://account/journals":      {Account: "account", Container: "journals"},
		"azblob://account/journals/a/b/": {Account: "account", Container: "journals", Prefix: "a/b"},
		"azblob://account/journals/p?endpoint=http://127.0.0.1:10000&anonymous=true": {Account: "account", Container: "journals", Prefix: "p", Endpoint: "http://127.0.0.1:10000", Anonymous: true},
	} {
		got, err := ParseURL(buckettest.URL(t, raw))
		if err != nil || got != want {
			t.Errorf("ParseURL(%s) = %+v, %v; want %+v", raw, got, err, want)
		}
	}
	buckettest.URLsAreRefused(t, ParseURL, map[string]string{
		"s3://account/journals":                          `has the scheme "s3"`,
		"azblob:///journals":                             `storage account "" is not valid`,
		"azblob://account":                               `container name "" is not valid`,
		"azblob://account/-journals":                     "is not valid",
		"azblob://account/jour--nals":                    "is not valid",
		"azblob://account.blob.core.windows.net/c":       "is not valid",
		"azblob://me:hunter2@account/journals":           "carries credentials",
		"azblob://account/journals?sig=hunter2":          "looks like a secret",
		"azblob://account/journals?sv=2026":              `unknown parameter "sv"`,
		"azblob://account/journals?anonymous=perhaps":    `anonymous="perhaps"`,
		"azblob://account/journals?endpoint=":            "must give endpoint once",
		"azblob://account/journals?endpoint=http://a.b":  "credentials in clear text",
		"azblob://account/journals?endpoint=https://a/b": "has more than a host",
		"azblob://account/journals#x":                    "malformed",
		"azblob://account/journals/a//b":                 `prefix "a//b" is not valid`,
	})
}

// TestAddress: the account is in the host name, or else in the path.
func TestAddress(t *testing.T) {
	for endpoint, want := range map[string]string{
		"":                       "https://account.blob.core.windows.net/journals",
		"http://127.0.0.1:10000": "http://127.0.0.1:10000/account/journals",
		"https://account.blob.core.chinacloudapi.cn/": "https://account.blob.core.chinacloudapi.cn/journals",
		"https://accounts.example":                    "https://accounts.example/account/journals",
	} {
		if got := (Config{Account: "account", Container: "journals", Endpoint: endpoint}).url(); got != want {
			t.Errorf("the address at %q is %s, want %s", endpoint, got, want)
		}
	}
}

// FuzzParseURL: what is accepted names one container at the endpoint that it gives, and is
// the same for the journal's location.
func FuzzParseURL(f *testing.F) {
	buckettest.FuzzURL(f, ParseURL, func(t *testing.T, raw string, cfg Config) {
		address, err := url.Parse(cfg.url())
		if err != nil || !strings.HasSuffix(address.Path, "/"+cfg.Container) || address.User != nil || address.RawQuery != "" {
			t.Fatalf("%q has the address %q, %v", raw, cfg.url(), err)
		}
		again, err := ParseURL(buckettest.URL(t, cfg.location()))
		if err != nil {
			t.Fatalf("%q has the location %q: %v", raw, cfg.location(), err)
		}
		cfg.Endpoint, cfg.Anonymous = "", false // no part of the location
		if diff := cmp.Diff(cfg, again); diff != "" {
			t.Errorf("%q has the location %q (-first +second):\n%s", raw, cfg.location(), diff)
		}
	},
		"azblob://account/journals/a/b?endpoint=http://127.0.0.1:10000&anonymous=false",
		"azblob://me:secret@account/journals?sig=x",
		"azblob://account/%2e%2e/?endpoint=%20",
	)
}
