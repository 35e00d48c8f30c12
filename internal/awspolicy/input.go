package awspolicy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	accountPattern   = regexp.MustCompile(`^[0-9]{12}$`)
	principalPattern = regexp.MustCompile(`^arn:aws(-cn|-us-gov)?:(iam::[0-9]{12}:(root|(role|user)/[A-Za-z0-9+=,.@_/-]+)|sts::[0-9]{12}:assumed-role/[A-Za-z0-9+=,.@_/-]+)$`)
	topicPattern     = regexp.MustCompile(`^arn:aws(-cn|-us-gov)?:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$`)
	queuePattern     = regexp.MustCompile(`^arn:aws(-cn|-us-gov)?:sqs:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+\*?$`)
)

// Partition is the part of AWS that a region belongs to; that of the commercial regions
// if region is empty.
func Partition(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	}
	return "aws"
}

// PrincipalOf returns the ARN of a party: the one that is given, or else that of the whole
// account; empty if neither is given.
func PrincipalOf(partition, account, arn string) (string, error) {
	switch {
	case account != "" && !accountPattern.MatchString(account):
		return "", fmt.Errorf("account %q is not valid; an account has 12 digits", account)
	case arn == "" && account == "":
		return "", nil
	case arn == "":
		return "arn:" + partition + ":iam::" + account + ":root", nil
	case !principalPattern.MatchString(arn):
		return "", fmt.Errorf("principal %q is not valid; want the ARN of a role, of a user or of an account, such as arn:%s:iam::123456789012:role/NAME", arn, partition)
	case account != "" && accountOf(arn) != account:
		return "", fmt.Errorf("principal %s is not of the account %s", arn, account)
	}
	return arn, nil
}

// Check says what is wrong with n. A * at the end of the queue stands for any ending.
func (n Notifications) Check() error {
	switch {
	case n.Topic != "" && strings.HasSuffix(n.Topic, ".fifo"), n.Queue != "" && strings.HasSuffix(n.Queue, ".fifo"):
		return errors.New("a topic or queue whose name ends in .fifo delivers in order, and waits for that; use a standard one")
	case n.Topic != "" && !topicPattern.MatchString(n.Topic):
		return fmt.Errorf("topic %q is not valid; want an ARN such as arn:aws:sns:eu-west-1:123456789012:NAME", n.Topic)
	case n.Queue != "" && !queuePattern.MatchString(n.Queue):
		return fmt.Errorf("queue %q is not valid; want an ARN such as arn:aws:sqs:eu-west-1:123456789012:NAME, or …:NAME-* for queues that servers make", n.Queue)
	}
	return nil
}

// region is the region that an ARN names.
func region(arn string) string { return field(arn, 3) }

// accountOf is the account that an ARN names.
func accountOf(arn string) string { return field(arn, 4) }

func field(arn string, i int) string {
	if fields := strings.SplitN(arn, ":", 6); i < len(fields) {
		return fields[i]
	}
	return ""
}
