package azurelog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// client makes the SDK's client of the container, which sends each request once, by conns.
// It sends nothing itself. The error is one sentence, and repeats no secret.
func (c Config) client(conns *http.Transport) (*container.Client, error) {
	options := &container.ClientOptions{
		ClientOptions: azcore.ClientOptions{
			Retry:     policy.RetryOptions{MaxRetries: -1}, // none: a Create that is repeated after it landed looks like a loss
			Telemetry: policy.TelemetryOptions{Disabled: true},
			Transport: &http.Client{
				Transport:     bucket.OnlyStores{RoundTripper: conns, Lacks: lacks},
				CheckRedirect: bucket.NoRedirect,
			},
		},
		ExpectContinueBehavior: container.ExpectContinueOptions{Mode: container.ExpectContinueModeOff},
	}
	switch connection, key := os.Getenv("AZURE_STORAGE_CONNECTION_STRING"), os.Getenv("AZURE_STORAGE_KEY"); {
	case c.Anonymous:
		return container.NewClientWithNoCredential(c.url(), options)
	case c.Key != "":
		return c.withKey("the configuration", c.Account, c.Key, options)
	case connection != "":
		return c.withConnectionString(connection, options)
	case key != "":
		return c.withKey("AZURE_STORAGE_KEY", os.Getenv("AZURE_STORAGE_ACCOUNT"), key, options)
	}
	return c.withIdentity(options)
}

// withKey has requests signed with the key of an account, which origin gives. If account
// is empty, the key is that of the journal's.
func (c Config) withKey(origin, account, key string, options *container.ClientOptions) (*container.Client, error) {
	if account != "" && account != c.Account {
		return nil, fmt.Errorf("AZURE_STORAGE_ACCOUNT is %q, and --journal names the storage account %q; correct one of them", account, c.Account)
	}
	shared, err := container.NewSharedKeyCredential(c.Account, key)
	if err != nil {
		return nil, fmt.Errorf("the key in %s is no base64; copy it once more", origin)
	}
	return container.NewClientWithSharedKeyCredential(c.url(), shared, options)
}

// withConnectionString takes the credentials of a connection string, and the address from
// the journal's URL: the two must agree.
func (c Config) withConnectionString(connection string, options *container.ClientOptions) (*container.Client, error) {
	client, err := container.NewClientFromConnectionString(connection, c.Container, options)
	if err != nil {
		return nil, fmt.Errorf("AZURE_STORAGE_CONNECTION_STRING is malformed; copy it once more from the storage account's access keys")
	}
	if address := place(client.URL()); address != c.url() {
		return nil, fmt.Errorf("AZURE_STORAGE_CONNECTION_STRING leads to %s, and --journal to %s; correct one of them", address, c.url())
	}
	return client, nil
}

// place is an address without what may be secret in it.
func place(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "no URL"
	}
	return u.Scheme + "://" + u.Host + strings.TrimSuffix(u.Path, "/")
}

// withIdentity takes the credentials that Azure's libraries find.
func (c Config) withIdentity(options *container.ClientOptions) (*container.Client, error) {
	if strings.HasPrefix(c.Endpoint, "http://") {
		return nil, fmt.Errorf("no credentials for %s: tokens are sent by https only; give a key by AZURE_STORAGE_KEY, or write anonymous=true", c.Endpoint)
	}
	found, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, bucket.Explained(err, fmt.Sprintf("no credentials for %s can be looked for, because the environment is malformed; give them by %s", c.store(), credentialsAre))
	}
	return container.NewClient(c.url(), tokens{found}, options)
}

// tokens marks the errors of whoever gives tokens, so that they are told from the store's.
type tokens struct{ azcore.TokenCredential }

// GetToken implements azcore.TokenCredential.
func (t tokens) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := t.TokenCredential.GetToken(ctx, options)
	if err != nil {
		err = &tokenError{err}
	}
	return token, err
}

// tokenError: no request was sent to the store, because there was no token for it.
type tokenError struct{ cause error }

func (e *tokenError) Error() string { return "no token: " + e.cause.Error() }
func (e *tokenError) Unwrap() error { return e.cause }

// passing says whether the trouble may pass by itself: there are credentials, and whoever
// gives tokens for them did not refuse.
func (e *tokenError) passing() bool {
	var failed *azidentity.AuthenticationFailedError
	return errors.As(e.cause, &failed) && (failed.RawResponse == nil || failed.RawResponse.StatusCode >= 500)
}

// lacks says what a success lacks that the store always sends.
func lacks(_ *http.Request, resp *http.Response) string {
	if resp.Header.Get("X-Ms-Version") == "" {
		return "an x-ms-version"
	}
	return ""
}

// checkSettings looks at the settings of the container, and writes nothing. The error is
// one sentence about a setting that keeps records from being trimmed. What these
// credentials may not ask, or the store does not answer, is taken to be all right.
func (s *store) checkSettings(ctx context.Context) error {
	ctx, cancel := s.timeout.Limit(ctx, 0)
	defer cancel()
	got, err := s.container.GetProperties(ctx, nil)
	if err != nil {
		return nil
	}
	for name, on := range map[string]*bool{"an immutability policy": got.HasImmutabilityPolicy, "a legal hold": got.HasLegalHold} {
		if on != nil && *on {
			return bucket.Explained(bucket.ErrUnfit, fmt.Sprintf("container %q has %s, under which records cannot be trimmed and snapshots not replaced; remove it, or use another container", s.cfg.Container, name))
		}
	}
	return nil
}
