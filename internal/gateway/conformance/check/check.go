// Package check says what a check is and what it can find. It never asks a
// server anything.
package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A Check holds a server to one convention. S is what the check asks through.
type Check[S any] struct {
	// ID is group.what. It is stable, because people and programs refer to it.
	ID string
	// Convention says what a server does that follows it.
	Convention string
	// Source is the URL of the page that states the convention.
	Source string
	// Run carries the check out.
	Run func(context.Context, S) Finding
}

// The pages that state conventions.
const (
	Concepts    = "https://kubernetes.io/docs/reference/using-api/api-concepts/"
	Conventions = "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md"
	APIPage     = "https://kubernetes.io/docs/concepts/overview/kubernetes-api/"
	ApplyPage   = "https://kubernetes.io/docs/reference/using-api/server-side-apply/"
)

// A Finding is what a check has found.
type Finding struct {
	// Err is nil if the server follows the convention, a Skipped if the check
	// could not be carried out, and else says how the server breaks the
	// convention.
	Err error
	// Resources were asked, as name.version.group; nil if the check asked no
	// resource.
	Resources []string
}

// Skipped is the error of a check that could not be carried out. It says
// nothing against the server.
type Skipped string

func (e Skipped) Error() string { return string(e) }

// Skipf returns a Skipped.
func Skipf(format string, args ...any) error { return Skipped(fmt.Sprintf(format, args...)) }

// IsSkipped reports whether err says that a check could not be carried out.
func IsSkipped(err error) bool {
	var skipped Skipped
	return errors.As(err, &skipped)
}

// Each asks the same of several resources. The check fails if a resource breaks
// the convention, and passes if none does and at least one could be asked.
func Each[R fmt.Stringer](resources []R, ask func(R) error) Finding {
	var f Finding
	var broken, skipped []string
	for _, r := range resources {
		err := ask(r)
		if IsSkipped(err) {
			skipped = append(skipped, r.String()+": "+reason(err))
			continue
		}
		if err != nil {
			broken = append(broken, r.String()+": "+err.Error())
		}
		f.Resources = append(f.Resources, r.String())
	}
	switch {
	case len(broken) > 0:
		f.Err = errors.New(strings.Join(shorten(broken), "\n"))
	case len(f.Resources) > 0:
	case len(skipped) > 0:
		f.Err = Skipped(skipped[0])
	default:
		f.Err = Skipf("there is no resource that the caller may list; grant get, list and watch to see more")
	}
	return f
}

// reason is the text of the Skipped in err.
func reason(err error) string {
	var skipped Skipped
	errors.As(err, &skipped)
	return string(skipped)
}

// shorten keeps the first five lines and counts the others.
func shorten(lines []string) []string {
	const most = 5
	if len(lines) <= most {
		return lines
	}
	return append(lines[:most:most], fmt.Sprintf("and %d more", len(lines)-most))
}

// All joins what several parts of a check came to. If a part breaks the
// convention, the error says so, whatever else could not be carried out; else it
// is a Skipped if there is any.
func All(errs []error) error {
	var broken []error
	for _, err := range errs {
		if err != nil && !IsSkipped(err) {
			broken = append(broken, err)
		}
	}
	if len(broken) > 0 {
		return errors.Join(broken...)
	}
	return errors.Join(errs...)
}
