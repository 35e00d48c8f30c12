package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/xbernetes/xbernetes/test/lab/wait"
)

// parts is how many objects each transaction of TestKillInTransactions makes.
const parts = 5

// transactionOf is a transaction that makes the parts of one set, with an idempotency
// key of its own.
func transactionOf(set int) []byte {
	type operation map[string]any
	var operations []operation
	for part := range parts {
		operations = append(operations, operation{"verb": "create", "object": map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": "default", "name": fmt.Sprintf("set-%d-%d", set, part), "labels": map[string]string{"set": fmt.Sprint(set)}},
		}})
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "transaction.xbernetes.io/v1alpha1", "kind": "Transaction",
		"spec": map[string]any{"idempotencyKey": fmt.Sprint("set-", set), "operations": operations},
	})
	if err != nil {
		panic(err)
	}
	return text
}

// answer is what the transaction of a set is answered with: the versions of its parts.
type answer struct {
	set    int
	Status struct {
		ResourceVersion string
		Results         []struct{ Object metav1.PartialObjectMetadata }
	}
}

// post sends the transaction of a set until it learns that it was made. The same key makes
// that safe.
func post(ctx context.Context, s *server, set int) (a answer, err error) {
	a.set = set
	for ctx.Err() == nil {
		var raw []byte
		if raw, err = try(ctx, s, set); err == nil {
			return a, json.Unmarshal(raw, &a)
		}
		if apierrors.IsAlreadyExists(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
			return a, err // never an answer to such a transaction
		}
		time.Sleep(50 * time.Millisecond)
	}
	return a, errors.Join(err, ctx.Err())
}

func try(ctx context.Context, s *server, set int) ([]byte, error) {
	cfg, err := s.config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return transact(ctx, client, transactionOf(set))
}

// transact sends a transaction.
func transact(ctx context.Context, client kubernetes.Interface, text []byte) ([]byte, error) {
	raw, err := client.CoreV1().RESTClient().Post().AbsPath("/apis/transaction.xbernetes.io/v1alpha1/transactions").
		SetHeader("Content-Type", "application/json").Body(text).Do(ctx).Raw()
	status := metav1.Status{}
	if err != nil && json.Unmarshal(raw, &status) == nil && status.Status == metav1.StatusFailure {
		return nil, &apierrors.StatusError{ErrStatus: status} // client-go takes each 409 of a POST for AlreadyExists
	}
	return raw, err
}

// seen is what a watch has shown: parts in order, each with its version.
type seen struct {
	mu    sync.Mutex
	names []string
	at    map[string]string // versions by name
}

// check says what is missing of a transaction that was answered.
func (s *seen) check(a answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(a.Status.Results) != parts || a.Status.Results[parts-1].Object.ResourceVersion != a.Status.ResourceVersion {
		return fmt.Errorf("set %d was answered with %+v", a.set, a.Status)
	}
	for _, r := range a.Status.Results {
		if s.at[r.Object.Name] != r.Object.ResourceVersion {
			return fmt.Errorf("%s was answered at version %s, and shown at %q", r.Object.Name, r.Object.ResourceVersion, s.at[r.Object.Name])
		}
	}
	return nil
}

// follow watches the parts at s from a version on, until ctx ends.
func (s *seen) follow(ctx context.Context, client kubernetes.Interface, version string) {
	for ctx.Err() == nil {
		w, err := client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{LabelSelector: "set", ResourceVersion: version})
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for event := range w.ResultChan() {
			if m, ok := event.Object.(*corev1.ConfigMap); ok {
				version = m.ResourceVersion
				s.mu.Lock()
				s.names = append(s.names, m.Name)
				s.at[m.Name] = version
				s.mu.Unlock()
			}
		}
	}
}

// TestKillInTransactions kills the server that carries out transactions, at any moment.
// At another server each is seen whole, its parts one right after the other, or not at
// all; each that was answered is there; and each was made once, however often it was sent.
func TestKillInTransactions(t *testing.T) {
	random := moments(t)
	store := startStore(t, nil)
	vendor := newServer(t, nil, "vendor", store.journal("plane"), vendorAccount.Env())
	tenant := newServer(t, nil, "tenant", store.journal("plane"), tenantAccount.Env())
	vendor.up(t)
	tenant.up(t)
	client, _ := tenant.clients(t)
	from, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watched := &seen{at: map[string]string{}}
	var work sync.WaitGroup
	work.Go(func() { watched.follow(ctx, client, from.ResourceVersion) })

	answers := make(chan answer, 1000)
	sending, rest := context.WithCancel(ctx)
	defer rest()
	var writers sync.WaitGroup
	for writer := range 3 {
		writers.Go(func() {
			for set := writer; sending.Err() == nil; set += 3 {
				a, err := post(ctx, vendor, set)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("set %d: %v", set, err)
					}
					return
				}
				answers <- a
			}
		})
	}
	made := killWhileTheyCome(t, random, vendor, answers)
	rest()
	go func() { writers.Wait(); close(answers) }()
	for a := range answers {
		made = append(made, a)
	}
	wait.Poll(t, startsWithin, "the watch has shown what was answered", func(context.Context) error {
		for _, a := range made {
			if err := watched.check(a); err != nil {
				return err
			}
		}
		return nil
	})
	stop()
	work.Wait()
	once := map[string]bool{}
	for i, name := range watched.names {
		var set, part int
		if n, err := fmt.Sscanf(name, "set-%d-%d", &set, &part); n != 2 || err != nil || part != i%parts || part > 0 && watched.names[i-1] != fmt.Sprintf("set-%d-%d", set, part-1) {
			t.Fatalf("after %v came %s", watched.names[max(0, i-parts):i], name)
		}
		if once[name] {
			t.Errorf("%s was made twice", name)
		}
		once[name] = true
	}
	if len(watched.names)%parts != 0 {
		t.Errorf("the last transaction was seen in part: %v", watched.names[len(watched.names)/parts*parts:])
	}
	t.Logf("%d transactions were made", len(watched.names)/parts)
}

// killWhileTheyCome kills a server while transactions are answered, and returns the
// answers.
func killWhileTheyCome(t *testing.T, random *rand.Rand, s *server, answers <-chan answer) (made []answer) {
	t.Helper()
	for range *crashKills / 2 {
		for range 1 + random.IntN(10) {
			select {
			case a := <-answers:
				made = append(made, a)
			case <-time.After(startsWithin):
				t.Fatal("no transaction was made for long")
			}
		}
		letPass(random, 300*time.Millisecond)
		s.Kill()
		s.up(t)
	}
	return made
}
