package transaction

import (
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/xbernetes/xbernetes/api/transaction/v1alpha1"
)

// Discreet is an audit policy that never logs what a transaction holds. Its operations are
// logged as the policy says for their kinds; a transaction may hold Secrets, of which a
// policy logs no bodies.
type Discreet struct{ audit.PolicyRuleEvaluator }

// EvaluatePolicyRule implements audit.PolicyRuleEvaluator.
func (d Discreet) EvaluatePolicyRule(a authorizer.Attributes) audit.RequestAuditConfig {
	config := d.PolicyRuleEvaluator.EvaluatePolicyRule(a)
	if a.GetAPIGroup() == v1alpha1.GroupName && auditinternal.LevelMetadata.Less(config.Level) {
		config.Level = auditinternal.LevelMetadata
	}
	return config
}
