package regions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xbernetes/xbernetes/test/lab/process"
)

// name is something to create and delete: the words of its command, and its key.
type name struct {
	command string
	args    []string
	key     string // KIND NAME
	flags   []string
}

// contested are the names for which the clients race. Accounts and service clusters that are in
// use cannot be deleted, and assignments need both.
func contested() []name {
	var all []name
	for i := range 3 {
		account := fmt.Sprintf("team-%d", i)
		all = append(all, name{"account", []string{account}, "Account " + account, []string{"--role", "tenant", "--subject", "user:anna"}})
		for _, cluster := range []string{"louvre", "kabuki"} {
			all = append(all, name{"assignment", []string{cluster, account}, "ServiceClusterAssignment " + cluster + "/" + account, nil})
		}
	}
	for _, cluster := range []string{"uffizi", "prado"} {
		all = append(all, name{"servicecluster", []string{cluster}, "ServiceCluster " + cluster, nil})
	}
	return all
}

// said is what a client was told of an operation.
type said struct {
	operation, verb, key, home string
	code                       int // the exit code; -1 if it was killed
}

// clients create and delete names in all regions, each in its own.
type clients struct {
	w        *world
	dir      string
	commands atomic.Int64
	killed   atomic.Int64

	mu   sync.Mutex
	told []said
}

// run has a client in each region create and delete names until ctx ends. Some are killed at any
// moment; of these, half ask again for what they began.
func (c *clients) run(ctx context.Context, seed uint64) error {
	var all sync.WaitGroup
	failed := make(chan error, len(continents))
	for region := range continents {
		rng := rand.New(rand.NewPCG(seed, uint64(len(region)+int(region[0])<<8))) //nolint:gosec // it must be repeatable
		all.Go(func() {
			for ctx.Err() == nil {
				if err := c.one(ctx, region, rng); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// one creates or deletes one name.
func (c *clients) one(ctx context.Context, region string, rng *rand.Rand) error {
	all := contested()
	n, verb := all[rng.IntN(len(all))], "create"
	if rng.IntN(5) < 2 {
		verb = "delete"
	}
	kill := time.Duration(0)
	if rng.IntN(4) == 0 {
		kill = 200*time.Millisecond + time.Duration(rng.Int64N(int64(2*time.Second)))
	}
	told, err := c.ask(ctx, request{region, verb, n, ""}, kill)
	if err != nil || told.code != -1 || told.operation == "" || rng.IntN(2) == 0 {
		return err
	}
	_, err = c.ask(ctx, request{region, verb, n, told.operation}, 0)
	return err
}

// request is what a client asks for.
type request struct {
	region, verb string
	name         name
	operation    string // to ask again for; "" is a new one
}

// asked is how the command says which operation it carries out.
var asked = regexp.MustCompile(`(?m)^operation (\S+):`)

// argv is the command for a request.
func (c *clients) argv(r request) []string {
	argv := append([]string{c.w.xb, r.name.command, r.verb}, r.name.args...)
	argv = append(argv, "--region", r.region, "--regions", c.w.file(continents[r.region]), "--timeout", "15s")
	if r.verb == "create" {
		argv = append(argv, r.name.flags...)
	}
	if r.operation != "" {
		argv = append(argv, "--operation", r.operation)
	}
	return argv
}

// ask runs the command once, kills it after a time if kill is not 0, and notes what it said.
func (c *clients) ask(ctx context.Context, r request, kill time.Duration) (said, error) {
	p, err := process.Start(process.Spec{Name: fmt.Sprintf("client-%s-%d", r.region, c.commands.Add(1)), Dir: c.dir, Argv: c.argv(r)})
	if err != nil {
		return said{}, err
	}
	p.ExpectEnd()
	told := said{verb: r.verb, key: r.name.key, home: r.region}
	var late <-chan time.Time
	if kill > 0 {
		late = time.After(kill)
	}
	select {
	case <-p.Ended():
	case <-late:
		c.killed.Add(1)
		p.Kill()
	case <-ctx.Done():
		p.Kill()
	}
	if m := asked.FindStringSubmatch(p.Printed(1000)); m != nil {
		told.operation = m[1]
	}
	var exit *exec.ExitError
	switch err := p.Err(); {
	case errors.As(err, &exit):
		told.code = exit.ExitCode() // -1 of a process that was killed
	case err != nil:
		return told, err
	}
	if strings.Contains(p.Printed(1000), "panic") {
		return told, fmt.Errorf("%+v panics: %s", r, p.Printed(30))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, told)
	return told, nil
}

// counts says how often the clients were told what.
func (c *clients) counts() map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[int]int{}
	for _, t := range c.told {
		all[t.code]++
	}
	return all
}

// kept says what a client was told that is not so; records are all operations of all regions,
// and void those of a region that was removed, of which it may have lost some. It is "" if all is
// so.
func (c *clients) kept(records, void map[string]operation) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.told {
		rec, ok := records[t.operation]
		if old, was := void[t.operation]; was {
			rec, ok = old, true
		}
		switch {
		case t.code == 2 && t.home == removable && rec.state == "Pending": // in the end, no record that counts is
		case t.code == 0 && (!ok || rec.state != "Done" || rec.key != t.key):
			return fmt.Sprintf("a client was told that it is done, and it is not: %+v; the record is %+v", t, rec)
		case t.code == 2 && ok && rec.state != "Aborted":
			return fmt.Sprintf("a client was told that nothing was changed, and the record is %+v: %+v", rec, t)
		}
	}
	return ""
}

// balanced says which key had two owners at one time, by the records: all creates that were
// carried out, but for one at most, are the targets of deletes that were. It is "" if none had.
// Of the void records of a region that was removed, those that had not ended were carried out or
// taken back by others; nobody knows which.
func balanced(records, void map[string]operation, owners map[string]claim) string {
	all := maps.Clone(records)
	maps.Copy(all, void)
	deleted, open := map[string]bool{}, map[string]bool{}
	for _, rec := range all {
		switch {
		case rec.verb == "Delete" && rec.state == "Done":
			deleted[rec.target] = true
		case rec.verb == "Delete" && rec.state != "Aborted":
			open[rec.target] = true
		}
	}
	for _, rec := range all {
		if rec.verb != "Create" || rec.state != "Done" || open[rec.id] {
			continue
		}
		if owner := owners[rec.key].owner; (owner == rec.id) == deleted[rec.id] {
			return fmt.Sprintf("%s was carried out; the owner of %s is %q, and deleted is %t", rec.id, rec.key, owner, deleted[rec.id])
		}
	}
	return ""
}
