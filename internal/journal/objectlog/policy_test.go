package objectlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/awspolicy"
	"github.com/xbernetes/xbernetes/internal/devstore"
	"github.com/xbernetes/xbernetes/internal/devstore/storetest"
	"github.com/xbernetes/xbernetes/internal/journal/journaltest"
	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
	"github.com/xbernetes/xbernetes/internal/journal/s3log/s3bucket"
)

// stranger is an account of the store that the policy does not name, and reader one that
// only reads.
var (
	reader   = devstore.Account{AccessKey: "reader", SecretKey: "reader-secret"}
	stranger = devstore.Account{AccessKey: "stranger", SecretKey: "stranger-secret"}
)

// roles are what each account is to the journals below policed/.
var roles = map[string]awspolicy.Role{vendor.AccessKey: awspolicy.Owner, tenant.AccessKey: awspolicy.Writer, reader.AccessKey: awspolicy.Reader}

// policed starts a versitygw whose bucket has the policy that xb aws policy prints for these
// roles, as far as versitygw understands it.
func policed(t *testing.T) *storetest.Store {
	t.Helper()
	var parties []awspolicy.Party
	for _, key := range slices.Sorted(maps.Keys(roles)) {
		parties = append(parties, awspolicy.Party{Role: roles[key], Principal: key})
	}
	// The suite has a prefix for each of its checks, and the policy one for all of them.
	printed := awspolicy.Bucket(awspolicy.Journal{Partition: "aws", Bucket: testBucket, Prefix: "policed/*"}, parties...)
	document, err := json.Marshal(understood(printed))
	if err != nil {
		t.Fatal(err)
	}
	return storetest.Start(t, devstore.Config{Dir: t.TempDir(), Bucket: testBucket, Accounts: []devstore.Account{vendor, tenant, reader, stranger}, Policy: document})
}

// understood is a policy without what versitygw does not know: s3:if-none-match. A
// statement that denies under that condition alone goes; one that allows loses the
// condition. The denial of clear text goes too, because the test's store speaks nothing else.
func understood(d awspolicy.Document) awspolicy.Document {
	out := awspolicy.Document{Version: d.Version}
	for _, s := range d.Statement {
		if s.Effect == "Deny" {
			continue
		}
		if _, ok := s.Condition["Null"]["s3:if-none-match"]; ok {
			s.Condition = nil
		}
		out.Statement = append(out.Statement, s)
	}
	return out
}

// TestGatewayUnderPolicy: the owner needs no more than the policy that is printed for it.
func TestGatewayUnderPolicy(t *testing.T) {
	t.Parallel()
	store, n := policed(t), 0
	journaltest.Run(t, func(t *testing.T) journaltest.Fixture {
		n++
		cfg := Config{Bucket: testBucket, Prefix: fmt.Sprint("policed/", n), Endpoint: store.Endpoint(), PathStyle: true}
		return fixture(by(cfg, vendor))
	})
}

// TestPolicyRefuses: a store that evaluates the printed policy lets each role do its part,
// and refuses it all else.
func TestPolicyRefuses(t *testing.T) {
	t.Parallel()
	gateway := policed(t)
	cfg := Config{Bucket: testBucket, Prefix: "policed/j", Endpoint: gateway.Endpoint(), PathStyle: true}
	as := func(account devstore.Account, prefix string) bucket.Store {
		c := by(cfg, account)
		c.Prefix = prefix
		store, err := s3bucket.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		return store
	}
	requests := map[string]func(s bucket.Store, name string) error{
		"create": func(s bucket.Store, name string) error {
			_, err := s.Create(t.Context(), name, []byte("x"))
			return err
		},
		"read": func(s bucket.Store, name string) error {
			_, _, err := s.Get(t.Context(), name, 10)
			return err
		},
		"list": func(s bucket.Store, name string) error {
			_, err := s.List(t.Context(), name, "", "")
			return err
		},
		"delete": func(s bucket.Store, name string) error { return s.Remove(t.Context(), name) },
	}
	for _, name := range []string{"meta.json", "journal/1", "floor/1", "blobs/a", "probe/x/passed"} {
		if err := requests["create"](as(vendor, "policed/j"), name); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		account     devstore.Account
		may, mayNot string // a request and a name, each
	}{
		{tenant, "create journal/2, read journal/1, read meta.json, list journal/, list floor/, create blobs/b, list probe/", "delete journal/1, delete floor/1, delete blobs/a, create floor/2, create meta.json, create else, list else"},
		{reader, "read journal/1, read meta.json, read blobs/a, list journal/, list floor/", "create journal/3, create blobs/c, create probe/y, delete journal/1, delete blobs/a"},
		{stranger, "", "read journal/1, list journal/, create journal/3, delete journal/1"},
		{vendor, "read journal/1, delete journal/1, delete floor/1, delete blobs/a, create floor/2", "create else, read else"},
	} {
		try := func(request string) error {
			what, name, _ := strings.Cut(request, " ")
			return requests[what](as(test.account, "policed/j"), name)
		}
		for _, request := range strings.FieldsFunc(test.may, isComma) {
			if err := try(strings.TrimSpace(request)); err != nil {
				t.Errorf("%s: %s: %v", test.account.AccessKey, request, err)
			}
		}
		for _, request := range strings.FieldsFunc(test.mayNot, isComma) {
			if err := try(strings.TrimSpace(request)); !errors.Is(err, bucket.ErrDenied) {
				t.Errorf("%s: %s: %v, want that it is denied", test.account.AccessKey, request, err)
			}
		}
		if err := requests["read"](as(test.account, "others"), "journal/1"); !errors.Is(err, bucket.ErrDenied) {
			t.Errorf("%s reads another journal: %v, want that it is denied", test.account.AccessKey, err)
		}
	}
}

func isComma(r rune) bool { return r == ',' }
