package s3bucket

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/xbernetes/xbernetes/internal/journal/objectlog/bucket"
)

// CheckSettings looks at the settings of the bucket, and writes nothing. The error is one
// sentence about a setting that would destroy a journal or keep it from being written.
// costly are sentences about settings that only cost money. What these credentials may not
// ask, or the store does not answer, is taken to be all right.
func (s *Store) CheckSettings(ctx context.Context) (costly []string, err error) {
	ctx, cancel := s.timeout.Limit(ctx, 0)
	defer cancel()
	var (
		all       sync.WaitGroup
		rules     *s3.GetBucketLifecycleConfigurationOutput
		versions  *s3.GetBucketVersioningOutput
		retention *s3.GetObjectLockConfigurationOutput
	)
	all.Go(func() {
		rules, _ = s.client.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &s.cfg.Bucket})
	})
	all.Go(func() {
		versions, _ = s.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &s.cfg.Bucket})
	})
	all.Go(func() {
		retention, _ = s.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &s.cfg.Bucket})
	})
	all.Wait()
	if rules != nil {
		for _, rule := range rules.Rules {
			if what := harm(rule, s.prefix.Key("")); what != "" {
				return nil, bucket.Explained(bucket.ErrUnfit, fmt.Sprintf("lifecycle rule %q of bucket %q %s; remove it, or have it leave out the prefix %q", aws.ToString(rule.ID), s.cfg.Bucket, what, s.prefix.Key("")))
			}
		}
	}
	if retention != nil && retention.ObjectLockConfiguration != nil && retention.ObjectLockConfiguration.Rule != nil {
		return nil, bucket.Explained(bucket.ErrUnfit, fmt.Sprintf("bucket %q has Object Lock with a default retention, under which records can be neither written nor trimmed; remove the default retention, or use another bucket", s.cfg.Bucket))
	}
	if versions != nil && versions.Status == types.BucketVersioningStatusEnabled {
		costly = append(costly, fmt.Sprintf("bucket %q has versioning on: records that are trimmed are kept and billed until a lifecycle rule with NoncurrentVersionExpiration deletes them; switch versioning off, or add such a rule", s.cfg.Bucket))
	}
	return costly, nil
}

// harm says what a lifecycle rule does to objects below prefix; "": nothing.
func harm(rule types.LifecycleRule, prefix string) string {
	if rule.Status != types.ExpirationStatusEnabled || !covers(rule, prefix) {
		return ""
	}
	if e := rule.Expiration; e != nil && (aws.ToInt32(e.Days) > 0 || e.Date != nil) {
		return "deletes records after a time, so that acknowledged writes are lost"
	}
	for _, move := range rule.Transitions {
		if c := move.StorageClass; c == types.TransitionStorageClassGlacier || c == types.TransitionStorageClassDeepArchive {
			return "moves records to an archive, where they cannot be read"
		}
	}
	return ""
}

// covers says whether a rule may be about objects below prefix. Objects of a journal have no
// tags.
func covers(rule types.LifecycleRule, prefix string) bool {
	about := aws.ToString(rule.Prefix) //nolint:staticcheck // older rules have theirs here
	if f := rule.Filter; f != nil {
		about = aws.ToString(f.Prefix)
		if f.And != nil {
			about = aws.ToString(f.And.Prefix)
		}
		if f.Tag != nil || f.And != nil && len(f.And.Tags) > 0 {
			return false
		}
	}
	return strings.HasPrefix(prefix, about) || strings.HasPrefix(about, prefix)
}
