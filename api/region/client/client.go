// Package client gives accounts, service clusters and assignments one owner in all regions,
// with the credentials of whoever uses it. It never starts a goroutine that outlives a call,
// and holds nothing that a region does not.
package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/xbernetes/xbernetes/internal/backoff"
	"github.com/xbernetes/xbernetes/internal/region/kube"
	"github.com/xbernetes/xbernetes/internal/region/protocol"
	"github.com/xbernetes/xbernetes/internal/region/route"
	"github.com/xbernetes/xbernetes/internal/region/stored"
)

// Errors of calls. After all but ErrOpen and ErrRemoved, nothing was changed.
var (
	// ErrInvalid: there can be no such name, spec, operation or region, whatever the regions
	// have. The errors that are this one have messages of their own.
	ErrInvalid = errors.New("it cannot be asked for")
	// ErrTaken: the name has an owner already.
	ErrTaken = errors.New("it exists already")
	// ErrAbsent: there is nothing of that name.
	ErrAbsent = errors.New("there is none")
	// ErrInUse: assignments name it, and must be deleted first.
	ErrInUse = errors.New("it is in use")
	// ErrContended: another operation on the same name went first. Ask again.
	ErrContended = errors.New("another operation on the same name went first; ask again")
	// ErrExpired: the operation was asked for before, or its ID was made, before records were
	// collected. Nobody can tell what became of it; it is not carried out again.
	ErrExpired = errors.New("it is too old for anybody to tell what became of it")
	// ErrNotMember: the region has not joined, or was removed.
	ErrNotMember = errors.New("the region is not an active member")
	// ErrLayout: the regions were founded with another register or central store than
	// this client is configured with.
	ErrLayout = errors.New("the regions do not belong to this configuration")
	// ErrAway: the region does not answer.
	ErrAway = errors.New("the region does not answer")
	// ErrRemoved: the region was removed while it had the operation, without a central store.
	// The others finish it or take it back.
	ErrRemoved = protocol.ErrRemoved
	// ErrOpen: the time was over before the outcome was known. It may be carried out yet;
	// asking again with the same operation ID tells, or goes on.
	ErrOpen = errors.New("the outcome is open")
)

// invalid is an ErrInvalid.
type invalid struct{ error }

func (invalid) Is(target error) bool { return target == ErrInvalid }
func (i invalid) Unwrap() error      { return i.error }

// patience is how long a client waits for another's undecided operation on the same name
// before it takes the other client for dead, and aborts that operation. If the other is
// alive, its user is told ErrContended or asks again; no name ever gets two owners by it.
const patience = 10 * time.Second

// Regions are all regions, as one caller reaches them. Safe for concurrent use.
type Regions struct {
	config   Config
	layout   protocol.Layout
	places   *kube.Places
	token    string // of the caller, beside what config has; "": none
	routes   *route.Table
	progress func(string)
}

// Open returns the regions of a configuration, and asks none of them. progress is told, by
// whoever calls, what is waited for; nil: nobody is told.
func Open(c Config, progress func(string)) (*Regions, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	r := &Regions{config: c, layout: protocol.Layout{Register: stored.Place(c.Register)}, routes: route.New(), progress: progress}
	configs := map[stored.Place]*rest.Config{}
	for name, config := range c.Regions {
		configs[stored.Place(name)] = config
	}
	if c.Central != nil {
		r.layout = protocol.Layout{Central: true, Register: stored.Central}
		configs[stored.Central] = c.Central
	}
	var err error
	if r.places, err = kube.New(configs); err != nil {
		return nil, err
	}
	if progress == nil {
		r.progress = func(string) {}
	}
	return r, nil
}

// As returns the same regions, asked with a bearer token, for one caller of a server. The
// configuration must have no credentials of its own (Config.Anonymous), or both are sent.
// Known routes are shared between calls with the same token, and with no other.
func (r *Regions) As(token string, progress func(string)) *Regions {
	as := *r
	as.token = token
	if as.progress = progress; progress == nil {
		as.progress = func(string) {}
	}
	return &as
}

// call returns what carries requests out as the caller.
func (r *Regions) call(ctx context.Context) stored.Call {
	return r.places.Call(kube.WithToken(ctx, r.token))
}

// Region is one region, in which a client asks for something. What it creates has its home
// there.
type Region struct {
	*Regions
	name stored.Region
}

// In returns a region of the configuration.
func (r *Regions) In(region string) (*Region, error) {
	if r.config.Regions[region] == nil {
		return nil, invalid{fmt.Errorf("region %q is not among those that are configured", region)}
	}
	return &Region{r, stored.Region(region)}, nil
}

// NewOperation returns an operation ID that was never used. Whoever asks again with it, after
// a crash or ErrOpen, has the operation carried out at most once.
func (r *Region) NewOperation(ctx context.Context) (string, error) {
	var id stored.OpID
	err := r.until(ctx, func(p *protocol.Pass) (err error) {
		id.Window, err = p.Window()
		return err
	})
	id.Unique = strings.ToLower(rand.Text())
	return id.String(), err
}

// until makes passes until one comes to an end, or ctx does.
func (r *Region) until(ctx context.Context, pass func(*protocol.Pass) error) error {
	pace := backoff.Backoff{First: 20 * time.Millisecond, Last: 2 * time.Second}
	var said string
	var since time.Time // when this client began to wait for the operation `other`
	var other stored.OpID
	for n := 1; ; n++ {
		hasty := !since.IsZero() && time.Since(since) > patience
		err := pass(protocol.Begin(r.layout, r.name, r.call(ctx), hasty))
		var waiting *protocol.Waiting
		var joining *protocol.Joining
		switch {
		case errors.As(err, &waiting):
			if waiting.For != other || since.IsZero() {
				since, other = time.Now(), waiting.For
			}
		case errors.Is(err, protocol.ErrAgain), errors.As(err, &joining):
			since = time.Time{}
		default:
			return err
		}
		if n > 3 && err.Error() != said {
			said = err.Error()
			r.progress("waiting: " + said)
		}
		if pace.Pause(ctx, n) != nil {
			return fmt.Errorf("%w: %w", ErrOpen, err)
		}
	}
}

// read reads what there is in a place, if it answers. found is nil if there is nothing.
func (r *Regions) read(ctx context.Context, request stored.Request) (stored.Body, error) {
	switch a := r.call(ctx)(request)[0]; a.Outcome {
	case stored.OK:
		return a.Object.Body, nil
	case stored.NotFound:
		return nil, nil
	default:
		return nil, noAnswer(request.Place, a)
	}
}

// noAnswer is the error for a read that was refused, or has no answer.
func noAnswer(p stored.Place, a stored.Answer) error {
	switch {
	case errors.Is(a.Err, kube.ErrNotServed):
		return fmt.Errorf("%s: %w: %w", placeName(p), ErrNotMember, a.Err)
	case a.Outcome == stored.Refused:
		return fmt.Errorf("read %s: %w", placeName(p), a.Err)
	}
	return fmt.Errorf("%s: %w: %w", placeName(p), ErrAway, a.Err)
}

func placeName(p stored.Place) string {
	if p == stored.Central {
		return "the central store"
	}
	return "region " + string(p)
}
