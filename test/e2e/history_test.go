package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// registers is how many ConfigMaps the histories are about, which is few, so that calls meet.
const registers = 4

// state is what the registers hold. Every value is written once.
type state [registers]string

// call reads registers, or writes some that still hold what is expected.
type call struct {
	read         map[int]string
	expect, next map[int]string // of a write; next may have fewer registers
	conflict     bool           // nothing was written, because others had come first
	unknown      bool           // the answer was lost
}

// asOne is the model: all registers are one object, and each call takes effect at one moment
// between its beginning and its end.
var asOne = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(now, input, _ any) (bool, any) {
		s, c := now.(state), input.(call)
		holds := func(want map[int]string) bool {
			for i, value := range want {
				if s[i] != value {
					return false
				}
			}
			return true
		}
		if c.conflict {
			return !holds(c.expect), s
		}
		if !holds(c.read) || !holds(c.expect) {
			return false, s
		}
		for i, value := range c.next {
			s[i] = value
		}
		return true, s
	},
}

// history collects calls. It is safe for concurrent use.
type history struct {
	began time.Time
	mu    sync.Mutex
	calls []porcupine.Operation
}

// add runs a call, and keeps it unless it failed: a read without an answer says nothing.
func (h *history) add(client int, run func() (call, error)) (call, error) {
	begin := time.Since(h.began)
	c, err := run()
	if err != nil {
		return c, err
	}
	end := int64(time.Since(h.began))
	if c.unknown {
		end = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, porcupine.Operation{ClientId: client, Input: c, Call: int64(begin), Return: end})
	return c, nil
}

// check judges the history. Of the writes whose answer was lost, those count of which a value
// was read: each write but these expects what it has read, and so a value that was never
// read, at the end either, was never written.
func (h *history) check(t *testing.T) {
	t.Helper()
	read, outcomes := map[string]bool{}, map[string]int{}
	for _, op := range h.calls {
		for _, value := range op.Input.(call).read {
			read[value] = true
		}
	}
	var counted []porcupine.Operation
	for _, op := range h.calls {
		c := op.Input.(call)
		switch {
		case c.unknown && !slices.ContainsFunc(slices.Collect(maps.Values(c.next)), func(value string) bool { return read[value] }):
			outcomes["unknown, never seen"]++
			continue
		case c.unknown:
			outcomes["unknown, seen"]++
		case c.conflict:
			outcomes["conflict"]++
		case len(c.next) > 1:
			outcomes["several written"]++
		case len(c.next) == 1:
			outcomes["one written"]++
		default:
			outcomes["read"]++
		}
		counted = append(counted, op)
	}
	t.Logf("calls: %v", outcomes)
	if got := porcupine.CheckOperationsTimeout(asOne, counted, 5*time.Minute); got != porcupine.Ok {
		t.Errorf("the history of %d calls is not strictly serializable: %s", len(counted), got)
	}
}

// party is one client of the histories: it sends each request once.
type party struct {
	kubernetes.Interface
	number int
	random *rand.Rand
	wrote  int // values; makes each a new one
}

func register(i int) string { return fmt.Sprint("register-", i) }

// newParty is a client of s.
func newParty(t *testing.T, s *server, number int, random *rand.Rand) *party {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.onceConfig())
	if err != nil {
		t.Fatal(err)
	}
	return &party{client, number, rand.New(rand.NewPCG(random.Uint64(), 0)), 0}
}

// readAll lists the registers.
func (p *party) readAll(ctx context.Context) (call, error) {
	list, err := p.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{LabelSelector: "register"})
	if err != nil {
		return call{}, err
	}
	c := call{read: map[int]string{}}
	for _, m := range list.Items {
		i, err := strconv.Atoi(m.Labels["register"])
		if err != nil {
			return c, err
		}
		c.read[i] = m.Data["v"]
	}
	if len(c.read) != registers {
		return c, fmt.Errorf("a list of %d registers", len(c.read))
	}
	return c, nil
}

// work makes calls until ctx ends.
func (p *party) work(ctx context.Context, h *history) {
	for ctx.Err() == nil {
		if p.random.IntN(3) == 0 {
			_, _ = h.add(p.number, func() (call, error) { return p.readAll(ctx) })
			continue
		}
		var found []*corev1.ConfigMap
		expect := map[int]string{}
		for _, i := range p.random.Perm(registers)[:1+p.random.IntN(3)] {
			_, err := h.add(p.number, func() (call, error) {
				m, err := p.CoreV1().ConfigMaps("default").Get(ctx, register(i), metav1.GetOptions{})
				if err != nil {
					return call{}, err
				}
				found, expect[i] = append(found, m), m.Data["v"]
				return call{read: map[int]string{i: m.Data["v"]}}, nil
			})
			if err != nil {
				break
			}
		}
		if len(found) > 0 {
			_, _ = h.add(p.number, func() (call, error) { return p.write(ctx, found, expect), nil })
		}
	}
}

// write replaces what was found: one object by a plain update or a transaction, several by
// a transaction, in which an object may also be left as it is, if it still is.
func (p *party) write(ctx context.Context, found []*corev1.ConfigMap, expect map[int]string) call {
	c := call{expect: expect, next: map[int]string{}}
	var operations []map[string]any
	for n, m := range found {
		if n > 0 && p.random.IntN(4) == 0 {
			operations = append(operations, map[string]any{
				"verb": "assert", "preconditions": map[string]any{"resourceVersion": m.ResourceVersion},
				"target": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": m.Name},
			})
			continue
		}
		i, err := strconv.Atoi(m.Labels["register"])
		if err != nil {
			panic(err) // found by readAll's label
		}
		p.wrote++
		m.Data = map[string]string{"v": fmt.Sprintf("%d-%d", p.number, p.wrote)}
		m.APIVersion, m.Kind = "v1", "ConfigMap"
		c.next[i] = m.Data["v"]
		operations = append(operations, map[string]any{"verb": "update", "object": m})
	}
	var err error
	if len(operations) == 1 && p.random.IntN(2) == 0 {
		_, err = p.CoreV1().ConfigMaps("default").Update(ctx, found[0], metav1.UpdateOptions{})
	} else {
		err = p.together(ctx, operations)
	}
	c.conflict = apierrors.IsConflict(err)
	c.unknown = err != nil && !c.conflict
	return c
}

// together carries out operations in one transaction. If the answer is lost, it asks again.
func (p *party) together(ctx context.Context, operations []map[string]any) error {
	text, err := json.Marshal(map[string]any{
		"apiVersion": "transaction.xbernetes.io/v1alpha1", "kind": "Transaction",
		"spec": map[string]any{"idempotencyKey": fmt.Sprintf("party-%d-%d", p.number, p.wrote), "operations": operations},
	})
	if err != nil {
		return err
	}
	for lost := false; ; lost = true {
		_, err := transact(ctx, p, text)
		switch {
		case err == nil, ctx.Err() != nil, apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
			return err
		case apierrors.IsConflict(err) && lost:
			return errors.New("the first attempt may have written, and the later one met it or others")
		case apierrors.IsConflict(err):
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestHistoriesOfTransactions: clients of one or two servers read and write a few objects, by
// transactions and by plain requests, while a server or the store is killed. The history is strictly
// serializable: some order of the calls, in which none comes before one that had ended when
// it began, explains what each was answered. Then clients move amounts between many objects,
// beside plain writers of the same objects, and the sum stays.
func TestHistoriesOfTransactions(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		alone := newServer(t, nil, "alone", "", nil)
		testHistories(t, []*server{alone}, func() { alone.again(t) })
	})
	t.Run("S3", func(t *testing.T) {
		store := startStore(t, nil)
		vendor := newServer(t, nil, "vendor", store.journal("plane"), vendorAccount.Env())
		tenant := newServer(t, nil, "tenant", store.journal("plane"), tenantAccount.Env())
		testHistories(t, []*server{vendor, tenant}, func() { vendor.again(t) }, func() {
			store.Kill()
			store.up(t)
		})
	})
}

// again kills the server and starts it again.
func (s *server) again(t *testing.T) {
	t.Helper()
	s.Kill()
	s.up(t)
}

// testHistories has clients of the servers at work while the faults happen.
func testHistories(t *testing.T, servers []*server, faults ...func()) {
	t.Helper()
	random := moments(t)
	for _, s := range servers {
		s.up(t)
	}
	client, _ := servers[0].clients(t)
	for i := range registers {
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: register(i), Labels: map[string]string{"register": strconv.Itoa(i)}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	h := &history{began: time.Now()}
	ctx, rest := context.WithCancel(t.Context())
	defer rest()
	var work sync.WaitGroup
	for n := range 6 {
		p := newParty(t, servers[n%len(servers)], n, random)
		work.Go(func() { p.work(ctx, h) })
	}
	for range *crashKills / 4 {
		letPass(random, 2*time.Second)
		faults[random.IntN(len(faults))]()
	}
	letPass(random, 2*time.Second)
	rest()
	work.Wait()
	last := newParty(t, servers[0], 6, random)
	if _, err := h.add(6, func() (call, error) { return last.readAll(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	h.check(t)
	moveAmounts(t, random, servers)
}

// moveAmounts has 50 clients move amounts between 100 objects, which others change, too.
func moveAmounts(t *testing.T, random *rand.Rand, servers []*server) {
	t.Helper()
	const accounts, clients, each, start = 100, 50, 4, 1000
	first, _ := servers[0].clients(t)
	for i := range accounts {
		if _, err := first.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: accountName(i), Labels: map[string]string{"account": ""}}, Data: map[string]string{"amount": strconv.Itoa(start)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, rest := context.WithCancel(t.Context())
	defer rest()
	var movers, writers sync.WaitGroup
	var moves, writes atomic.Int32
	for n := range clients {
		p := newParty(t, servers[n%len(servers)], 100+n, random)
		movers.Go(func() {
			for range each {
				if err := p.move(ctx, p.random.Perm(accounts)[:2]); err != nil {
					t.Error(err)
					return
				}
				moves.Add(1)
			}
		})
	}
	for n := range 4 {
		p := newParty(t, servers[n%len(servers)], 200+n, random)
		writers.Go(func() {
			for ctx.Err() == nil {
				if err := p.note(ctx, p.random.IntN(accounts)); err == nil {
					writes.Add(1)
				} else if ctx.Err() == nil {
					t.Errorf("a plain patch: %v", err)
				}
			}
		})
	}
	movers.Wait()
	rest()
	writers.Wait()
	for _, s := range servers {
		s.checkSum(t, accounts, accounts*start)
	}
	t.Logf("%d moves beside %d plain writes", moves.Load(), writes.Load())
}

// checkSum says whether the accounts at s hold what they should in all.
func (s *server) checkSum(t *testing.T, accounts, want int) {
	t.Helper()
	client, _ := s.clients(t)
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: "account"})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, m := range list.Items {
		amount, err := strconv.Atoi(m.Data["amount"])
		if err != nil {
			t.Error(err)
		}
		sum += amount
	}
	if len(list.Items) != accounts || sum != want {
		t.Errorf("at %s %d accounts hold %d in all, want %d and %d", s.name, len(list.Items), sum, accounts, want)
	}
}

func accountName(i int) string { return fmt.Sprint("account-", i) }

// note changes an account without its amount, by a plain patch.
func (p *party) note(ctx context.Context, i int) error {
	p.wrote++
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"note":"%d-%d"}}}`, p.number, p.wrote)
	_, err := p.CoreV1().ConfigMaps("default").Patch(ctx, accountName(i), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// move moves one from an account to another, however often others come first.
func (p *party) move(ctx context.Context, between []int) error {
	for ctx.Err() == nil {
		var operations []map[string]any
		for n, i := range between {
			m, err := p.CoreV1().ConfigMaps("default").Get(ctx, accountName(i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			amount, err := strconv.Atoi(m.Data["amount"])
			if err != nil {
				return err
			}
			m.APIVersion, m.Kind = "v1", "ConfigMap"
			m.Data["amount"] = strconv.Itoa(amount + 2*n - 1)
			operations = append(operations, map[string]any{"verb": "update", "object": m})
		}
		p.wrote++
		if err := p.together(ctx, operations); !apierrors.IsConflict(err) {
			return err
		}
	}
	return ctx.Err()
}
