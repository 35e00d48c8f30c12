package regioncmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/xbernetes/xbernetes/internal/usage"
)

// TestDeployments: the shipped manifests are what Kubernetes takes, and their arguments what the
// commands take.
func TestDeployments(t *testing.T) {
	for _, file := range []string{"agent-deployment.yaml", "serve.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "region", file))
		if err != nil {
			t.Fatal(err)
		}
		docs := strings.Split(string(text), "\n---\n")
		for _, doc := range docs[:len(docs)-1] {
			if err := yaml.UnmarshalStrict([]byte(doc), &corev1.Service{}); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict([]byte(docs[len(docs)-1]), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		args := d.Spec.Template.Spec.Containers[0].Args
		logs, root := &usage.Log{}, &cobra.Command{Use: "xb"}
		logs.Register(root)
		root.AddCommand(New(logs)...)
		cmd, rest, err := root.Find(args)
		if err != nil || !cmd.Runnable() {
			t.Fatalf("%s runs no command: %v, %v", file, args, err)
		}
		if err := cmd.ParseFlags(rest); err != nil || cmd.Flags().NArg() != 0 {
			t.Errorf("%s: %v is refused: %v, %v", file, args, err, cmd.Flags().Args())
		}
	}
}
