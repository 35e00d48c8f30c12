package awspolicy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xbernetes/xbernetes/internal/awspolicy"
)

// trial is a request for another's judgement.
type trial struct {
	Principal string              `json:"principal"` // an ARN, or a service
	Owner     string              `json:"owner"`     // the account that owns the resource
	Request   request             `json:"request"`
	Identity  *awspolicy.Document `json:"identity,omitempty"`
	Resource  *awspolicy.Document `json:"resource,omitempty"`

	what string
	want bool
}

// by is a party of account, under all policies that it and its resources have.
func by(account string, role awspolicy.Role) func(what string, r request, want bool) trial {
	party := awspolicy.Party{Role: role, Principal: "arn:aws:iam::" + account + ":root"}
	set, err := awspolicy.For(where, party, notifications)
	if err != nil {
		panic(err)
	}
	if account == ownAccount {
		set.Bucket, set.Topic = awspolicy.Bucket(where), nil // its own policy lets it in
	}
	return func(what string, r request, want bool) trial {
		t := trial{Principal: "arn:aws:iam::" + account + ":role/xb", Owner: ownAccount, Request: r, Identity: &set.Identity, what: role.String() + " of " + account + ": " + what, want: want}
		switch service := strings.Split(r.Resource, ":")[2]; {
		case service == "s3":
			t.Resource = &set.Bucket
		case service == "sns" && r.Resource == topic:
			t.Resource = set.Topic
		case service == "sqs":
			t.Owner = others
			if r.Resource == queue {
				t.Resource = set.Queue
			}
		}
		return t
	}
}

// TestSimulated: a policy evaluator of the field judges as our own does: what servers and
// tools ask for is allowed, within the bucket's account and from another, and what is
// forbidden is denied.
func TestSimulated(t *testing.T) {
	modules := os.Getenv("XB_IAM_SIMULATE")
	if modules == "" {
		t.Skip("test/aws/run runs this test, and installs iam-simulate for it")
	}
	var trials []trial
	owner, writer, reader := parties(t)
	for role, g := range map[awspolicy.Role]*guard{awspolicy.Owner: owner, awspolicy.Writer: writer, awspolicy.Reader: reader} {
		for _, account := range []string{ownAccount, others} {
			ask := by(account, role)
			for what, r := range g.allowed {
				trials = append(trials, ask(what, r, true))
			}
			mayNot(role, func(what string, r request) { trials = append(trials, ask(what, r, false)) })
		}
	}
	trials = append(trials, onNotifications(t)...)
	for i, verdict := range simulate(t, modules, trials) {
		if got := verdict == "Allowed"; got != trials[i].want || strings.HasPrefix(verdict, "error") {
			t.Errorf("%s: %s, want allowed = %v: %s", trials[i].what, verdict, trials[i].want, trials[i].Request.text())
		}
	}
	t.Logf("iam-simulate judged %d requests", len(trials))
}

// onNotifications are trials of those who publish, deliver, receive and subscribe.
func onNotifications(t *testing.T) (all []trial) {
	w := by(others, awspolicy.Writer)
	all = append(all,
		w("publish", request{Action: "sns:Publish", Resource: topic}, true),
		w("receive", request{Action: "sqs:ReceiveMessage", Resource: queue}, true),
		w("delete what it received", request{Action: "sqs:DeleteMessage", Resource: queue}, true),
	)
	stranger := w("publish as a stranger", request{Action: "sns:Publish", Resource: topic}, false)
	stranger.Principal = "arn:aws:iam::333333333333:role/xb"
	stranger.Owner = ownAccount
	all = append(all, stranger)
	policy, err := awspolicy.QueuePolicy(notifications)
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]bool{topic: true, topic + "2": false} {
		all = append(all, trial{
			Principal: "sns.amazonaws.com", Owner: others, Resource: &policy, what: "deliver from " + source, want: want,
			Request: request{Action: "sqs:SendMessage", Resource: queue, Context: map[string]string{"aws:SourceArn": source}},
		})
	}
	return all
}

// simulate returns what iam-simulate says of each trial.
func simulate(t *testing.T, modules string, trials []trial) (verdicts []string) {
	t.Helper()
	given, err := json.Marshal(trials)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(modules, "simulate.mjs"))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(given), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run iam-simulate: %v", err)
	}
	if err := json.Unmarshal(out, &verdicts); err != nil || len(verdicts) != len(trials) {
		t.Fatalf("iam-simulate gave %d verdicts on %d requests (%v)", len(verdicts), len(trials), err)
	}
	return verdicts
}
