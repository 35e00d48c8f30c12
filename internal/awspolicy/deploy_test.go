package awspolicy_test

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/internal/awspolicy"
)

var update = flag.Bool("update", false, "write the policies into deploy/aws")

const (
	cloudformation = "../../deploy/aws/cloudformation/"
	terraform      = "../../deploy/aws/terraform/"
)

// names are how a file calls the things that policies are about.
type names struct{ bucket, prefix, member, topic, queue, service string }

// policies are those of the files in deploy/aws, by name.
func (n names) policies(t *testing.T, theirQueue string) map[string]awspolicy.Document {
	t.Helper()
	j := awspolicy.Journal{Partition: "aws", Bucket: n.bucket, Prefix: n.prefix}
	member := awspolicy.Party{Role: awspolicy.Writer, Principal: "arn:aws:iam::" + n.member + ":root"}
	own := awspolicy.Notifications{Topic: n.topic, Queue: n.queue}
	queue, err := awspolicy.QueuePolicy(own)
	if err != nil {
		t.Fatal(err)
	}
	queue.Statement[0].Principal["Service"] = []string{n.service}
	return map[string]awspolicy.Document{
		"bucket": awspolicy.Bucket(j, member),
		"topic":  awspolicy.TopicPolicy(awspolicy.Notifications{Topic: n.topic, Queue: theirQueue}, member),
		"queue":  queue,
		"owner":  awspolicy.Identity(j, awspolicy.Owner, own),
		"writer": awspolicy.Identity(j, awspolicy.Writer, own),
	}
}

// substituted is a document as CloudFormation takes it: a text that names a parameter is
// put into Fn::Sub.
func substituted(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = substituted(v[key])
		}
	case []any:
		for i := range v {
			v[i] = substituted(v[i])
		}
	case string:
		if strings.Contains(v, "${") {
			return map[string]any{"Fn::Sub": v}
		}
	}
	return v
}

// marker is where a policy stands in a template of CloudFormation, with what was written
// there before: lines of YAML that are indented as far.
var marker = regexp.MustCompile(`(?m)^( *)# policy: (\w+)\n((?:^ *[^ \n].*\n)*?)(\n|\z|^ *(?:Outputs):)`)

// TestCloudFormation: the templates are YAML, and hold the policies that xb aws policy
// prints, with parameters for names.
func TestCloudFormation(t *testing.T) {
	for file, n := range map[string]names{
		"owner.yaml":  {"${Bucket}", "${Prefix}", "${MemberAccount}", "${Topic}", "${Queue.Arn}", "sns.amazonaws.com"},
		"member.yaml": {"${Bucket}", "${Prefix}", "${AWS::AccountId}", "${TopicArn}", "${Queue.Arn}", "${SnsService}"},
	} {
		policies := n.policies(t, "arn:aws:sqs:*:${MemberAccount}:xb-${Prefix}-member")
		matches(t, cloudformation+file, func(text string) string {
			return marker.ReplaceAllStringFunc(text, func(found string) string {
				part := marker.FindStringSubmatch(found)
				var document any
				given, err := json.Marshal(policies[part[2]])
				if err == nil {
					err = json.Unmarshal(given, &document)
				}
				out, err2 := yaml.Marshal(substituted(document))
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				lines := strings.Split(strings.TrimSpace(string(out)), "\n")
				return part[1] + "# policy: " + part[2] + "\n" + part[1] + strings.Join(lines, "\n"+part[1]) + "\n" + part[4]
			})
		})
		text, err := os.ReadFile(cloudformation + file)
		if err != nil {
			t.Fatal(err)
		}
		var template struct{ Resources map[string]any }
		if err := yaml.Unmarshal(text, &template); err != nil || len(template.Resources) < 4 {
			t.Errorf("%s has %d resources (%v)", file, len(template.Resources), err)
		}
	}
}

// TestTerraform: the policies that main.tf fills in are those that xb aws policy prints.
func TestTerraform(t *testing.T) {
	n := names{"${bucket}", "${prefix}", "${member_account}", "${topic}", "${queue}", "${sns_service}"}
	main, err := os.ReadFile(terraform + "main.tf")
	if err != nil {
		t.Fatal(err)
	}
	for name, policy := range n.policies(t, n.queue) {
		if !strings.Contains(string(main), "policies/"+name+".json.tftpl") {
			t.Errorf("main.tf does not use the policy %s", name)
		}
		matches(t, terraform+"policies/"+name+".json.tftpl", func(string) string {
			out, err := json.MarshalIndent(policy, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			return string(out) + "\n"
		})
	}
}

// matches holds a file against what made makes of its content.
func matches(t *testing.T, file string, made func(text string) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	want := made(string(text))
	if string(text) == want {
		return
	}
	if !*update {
		t.Errorf("%s is not what xb aws policy prints; write it again by go test ./internal/awspolicy -run %s -update", file, t.Name())
		return
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
