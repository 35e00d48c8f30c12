package devstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/posix"
)

// rootKey is the access key of the user that owns the bucket. Nobody holds
// its secret.
const rootKey = "devstore-root"

// accounts are the users of the store, fixed while it runs.
type accounts struct {
	auth.IAMService // refuses every change
	byKey           map[string]auth.Account
}

func newAccounts(given []Account) *accounts {
	a := &accounts{
		IAMService: auth.NewIAMServiceSingle(auth.Account{Access: rootKey}),
		byKey:      make(map[string]auth.Account, len(given)),
	}
	for _, account := range given {
		a.byKey[account.AccessKey] = auth.Account{Access: account.AccessKey, Secret: account.SecretKey, Role: auth.RoleUser}
	}
	return a
}

// GetUserAccount implements auth.IAMService.
func (a *accounts) GetUserAccount(key string) (auth.Account, error) {
	account, ok := a.byKey[key]
	if !ok {
		return auth.Account{}, auth.ErrNoSuchUser
	}
	return account, nil
}

// ResolveAccounts implements auth.IAMService: it returns the unknown keys.
func (a *accounts) ResolveAccounts(keys []string) ([]string, error) {
	missing := []string{}
	for _, key := range keys {
		if _, ok := a.byKey[key]; !ok {
			missing = append(missing, key)
		}
	}
	return missing, nil
}

// statement is one statement of a bucket policy.
type statement struct {
	Effect    string
	Principal map[string][]string
	Action    []string
	Resource  []string
}

// policy is what the accounts may do in the bucket: all of them list, read
// and write; deleting is for the owner, but for blobs and probe keys.
func policy(bucket string, given []Account) ([]byte, error) {
	var all, owners []string
	for _, account := range given {
		all = append(all, account.AccessKey)
		if account.Owner {
			owners = append(owners, account.AccessKey)
		}
	}
	arn := "arn:aws:s3:::" + bucket
	allow := func(keys, actions []string, resources ...string) statement {
		return statement{Effect: "Allow", Principal: map[string][]string{"AWS": keys}, Action: actions, Resource: resources}
	}
	statements := []statement{
		allow(all, []string{"s3:ListBucket"}, arn),
		allow(all, []string{"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"}, arn+"/*"),
		allow(all, []string{"s3:DeleteObject"}, arn+"/blobs/*", arn+"/probe/*", arn+"/*/blobs/*", arn+"/*/probe/*"),
	}
	if len(owners) > 0 {
		statements = append(statements, allow(owners, []string{"s3:DeleteObject"}, arn+"/*"))
	}
	return json.Marshal(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", statements})
}

// prepareBucket creates the bucket if it is not there, and sets its policy.
func (s *Store) prepareBucket(ctx context.Context, backend *posix.Posix, people *accounts) error {
	acl, err := json.Marshal(auth.ACL{Owner: rootKey})
	if err != nil {
		return fmt.Errorf("encode ACL: %w", err)
	}
	bucket := s.cfg.Bucket
	if _, err := backend.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &bucket}); err != nil {
		err := backend.CreateBucket(ctx, &s3.CreateBucketInput{
			Bucket:                    &bucket,
			CreateBucketConfiguration: &types.CreateBucketConfiguration{},
			ObjectOwnership:           types.ObjectOwnershipBucketOwnerEnforced,
		}, acl)
		if err != nil {
			return fmt.Errorf("create bucket %q: %w", bucket, err)
		}
	}
	// Again each time: a process that was killed may have left a bucket
	// without them, and the accounts may be others than last time.
	if err := backend.PutBucketAcl(ctx, bucket, acl); err != nil {
		return fmt.Errorf("set ACL of bucket %q: %w", bucket, err)
	}
	document := []byte(s.cfg.Policy)
	if len(document) == 0 {
		if document, err = policy(bucket, s.cfg.Accounts); err != nil {
			return fmt.Errorf("encode policy: %w", err)
		}
	}
	if err := auth.ValidatePolicyDocument(document, bucket, people); err != nil {
		return errors.Join(errors.New("the bucket policy is not valid"), err)
	}
	if err := backend.PutBucketPolicy(ctx, bucket, document); err != nil {
		return fmt.Errorf("set policy of bucket %q: %w", bucket, err)
	}
	return nil
}
