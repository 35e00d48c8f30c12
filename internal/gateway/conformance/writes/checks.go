// Package writes checks how a server creates, changes and deletes objects, and
// what watches see of it. It touches no object but those of its own run.
package writes

import (
	"context"

	"github.com/xbernetes/xbernetes/internal/gateway/conformance/check"
	"github.com/xbernetes/xbernetes/internal/gateway/conformance/scratch"
)

// Checks are all of this package, in the order in which they run: those that
// delete come last.
func Checks() []check.Check[*scratch.Space] {
	const (
		dryRuns     = check.Concepts + "#dry-run"
		validation  = check.Concepts + "#field-validation"
		concurrency = check.Conventions + "#concurrency-control-and-consistency"
		watches     = check.Concepts + "#efficient-detection-of-changes"
	)
	return []check.Check[*scratch.Space]{
		{ID: "dry-run.create", Source: dryRuns, Run: onTrial(checkDryCreate),
			Convention: "a create with dryRun=All is answered like any create, and creates nothing"},
		{ID: "dry-run.unknown", Source: dryRuns, Run: onTrial(checkDryUnknown),
			Convention: "a dryRun other than All is refused"},
		{ID: "dry-run.change", Source: dryRuns, Run: onTarget("patch", checkDryChange),
			Convention: "a patch and a delete with dryRun=All change nothing"},

		{ID: "field-validation.strict", Source: validation, Run: onTrial(checkStrict),
			Convention: "an unknown field is refused with 400 if fieldValidation=Strict"},
		{ID: "field-validation.warn", Source: validation, Run: onTrial(checkWarn),
			Convention: "an unknown field is answered with a Warning if fieldValidation=Warn"},
		{ID: "field-validation.ignore", Source: validation, Run: onTrial(checkIgnore),
			Convention: "an unknown field is dropped without a Warning if fieldValidation=Ignore"},

		{ID: "create.metadata", Source: check.Conventions + "#metadata", Run: onTarget("create", checkCreate),
			Convention: "a create is answered with 201, and the object has uid, creationTimestamp and resourceVersion"},
		{ID: "create.exists", Source: check.Conventions + "#http-status-codes", Run: onTarget("create", checkExists),
			Convention: "a create of an object that exists is refused with 409, AlreadyExists"},
		{ID: "create.generate-name", Source: check.Concepts + "#generated-values", Run: onTarget("create", checkGenerateName),
			Convention: "the server makes a name from generateName"},
		{ID: "update.metadata", Source: check.Conventions + "#metadata", Run: onTarget("update", checkUpdate),
			Convention: "an update changes resourceVersion, and neither uid nor creationTimestamp"},
		{ID: "update.conflict", Source: concurrency, Run: onTarget("update", checkConflict),
			Convention: "an update with an old resourceVersion is refused with 409, Conflict, and changes nothing"},

		{ID: "apply.create", Source: check.ApplyPage, Run: onTarget("patch", checkApply),
			Convention: "an apply creates an object that does not exist, and records the manager of its fields"},
		{ID: "apply.conflict", Source: check.ApplyPage + "#conflicts", Run: onTarget("patch", checkApplyConflict),
			Convention: "an apply of another manager's field is refused with 409 and its cause, unless it is forced"},
		{ID: "apply.remove", Source: check.ApplyPage, Run: onTarget("patch", checkApplyRemove),
			Convention: "a field is removed once its only manager no longer applies it"},
		{ID: "apply.manager", Source: check.ApplyPage + "#managers", Run: onTarget("patch", checkApplyManager),
			Convention: "an apply without fieldManager is refused"},

		{ID: "watch.live", Source: watches, Run: onTarget("watch", checkLive),
			Convention: "a watch reports each change as it happens, once and in order"},
		{ID: "watch.resume", Source: watches, Run: onTarget("watch", checkResume),
			Convention: "a watch from an object's resourceVersion reports the changes after it, and none before"},

		{ID: "delete.precondition", Source: concurrency, Run: onTarget("delete", checkPrecondition),
			Convention: "a delete with another uid is refused with 409, Conflict, and deletes nothing"},
		{ID: "delete.gone", Source: check.Conventions + "#verbs-on-resources", Run: onTarget("delete", checkGone),
			Convention: "a deleted object is gone"},
	}
}

type run = func(context.Context, *scratch.Target) error

// onTarget makes a check of what is done to objects that may be created. The
// resource must have the verb.
func onTarget(verb string, run run) func(context.Context, *scratch.Space) check.Finding {
	return func(ctx context.Context, space *scratch.Space) check.Finding {
		switch t := space.Target; {
		case t == nil:
			return check.Finding{Err: check.Skipf("%s", space.Why)}
		case !t.Can(verb):
			return check.Finding{Err: check.Skipf("%s has no %s", t, verb)}
		default:
			return check.Finding{Err: run(ctx, t), Resources: []string{t.String()}}
		}
	}
}

// onTrial makes a check that creates by dry run only.
func onTrial(run run) func(context.Context, *scratch.Space) check.Finding {
	return func(ctx context.Context, space *scratch.Space) check.Finding {
		t := space.Trial
		if t == nil {
			return check.Finding{Err: check.Skipf("the server accepts no object that is made from a schema, by dry run; give an object that may be created: --object")}
		}
		return check.Finding{Err: run(ctx, t), Resources: []string{t.String()}}
	}
}
