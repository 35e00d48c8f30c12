package s3bucket

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// settings opens a store whose bucket has settings, by the name of the query that asks for
// them. It fails the test if anything is written.
func settings(t *testing.T, answers map[string]string) *Store {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s is sent", r.Method, r.URL)
		}
		w.Header().Set("Content-Type", "application/xml")
		for query, answer := range answers {
			if r.URL.Query().Has(query) {
				fmt.Fprint(w, answer)
				return
			}
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
	}))
	t.Cleanup(server.Close)
	s, err := Open(t.Context(), Config{
		Bucket: "shared", Prefix: "prod", Endpoint: server.URL, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func rule(filter, what string) map[string]string {
	return map[string]string{"lifecycle": "<LifecycleConfiguration><Rule><ID>tidy</ID><Status>Enabled</Status>" + filter + what + "</Rule></LifecycleConfiguration>"}
}

// TestSettingsOfABucket: settings that destroy a journal are refused in a sentence, those
// that cost are told, and all others are left alone.
func TestSettingsOfABucket(t *testing.T) {
	const expire, everything = "<Expiration><Days>30</Days></Expiration>", "<Filter><Prefix></Prefix></Filter>"
	for name, c := range map[string]struct {
		answers        map[string]string
		refused, costs string // part of the sentence
	}{
		"all denied":              {},
		"no settings":             {answers: map[string]string{"lifecycle": "<LifecycleConfiguration/>", "versioning": "<VersioningConfiguration/>", "object-lock": "<ObjectLockConfiguration/>"}},
		"expires everything":      {answers: rule(everything, expire), refused: `"tidy" of bucket "shared" deletes records`},
		"expires the journal":     {answers: rule("<Filter><Prefix>prod/</Prefix></Filter>", expire), refused: "deletes records"},
		"expires part of it":      {answers: rule("<Prefix>prod/blobs/</Prefix>", expire), refused: "deletes records"},
		"expires another prefix":  {answers: rule("<Filter><Prefix>logs/</Prefix></Filter>", expire)},
		"expires what has a tag":  {answers: rule("<Filter><Tag><Key>k</Key><Value>v</Value></Tag></Filter>", expire)},
		"expires old versions":    {answers: rule(everything, "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>")},
		"moves to an archive":     {answers: rule(everything, "<Transition><Days>9</Days><StorageClass>GLACIER</StorageClass></Transition>"), refused: "archive"},
		"a rule that is off":      {answers: map[string]string{"lifecycle": strings.Replace(rule(everything, expire)["lifecycle"], "Enabled", "Disabled", 1)}},
		"default retention":       {answers: map[string]string{"object-lock": "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>"}, refused: "default retention"},
		"lock without a default":  {answers: map[string]string{"object-lock": "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>"}},
		"versioning":              {answers: map[string]string{"versioning": "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"}, costs: "versioning"},
		"versioning is suspended": {answers: map[string]string{"versioning": "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>"}},
	} {
		t.Run(name, func(t *testing.T) {
			costly, err := settings(t, c.answers).CheckSettings(t.Context())
			if (err != nil) != (c.refused != "") || err != nil && (!errors.Is(err, bucket.ErrUnfit) || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("CheckSettings = %v, want %q in it", err, c.refused)
			}
			if said := strings.Join(costly, "; "); (said != "") != (c.costs != "") || !strings.Contains(said, c.costs) {
				t.Errorf("CheckSettings says %q, want %q in it", said, c.costs)
			}
		})
	}
}
