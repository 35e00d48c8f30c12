// Package robustness puts etcd's own robustness traffic on several replicas of
// one journal while things fail, and asks etcd's own validation about what the
// clients saw: linearizable and serializable reads, and watches that are
// ordered, unique, atomic, reliable, resumable and bookmarkable, with true
// previous values.
package robustness

import (
	"context"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/xbernetes/xbernetes/internal/devstore"
	"github.com/xbernetes/xbernetes/internal/devstore/storetest"
	"github.com/xbernetes/xbernetes/internal/journal"
	"github.com/xbernetes/xbernetes/internal/journal/faultlog"
	"github.com/xbernetes/xbernetes/internal/journal/filelog"
	"github.com/xbernetes/xbernetes/internal/journal/memlog"
	"github.com/xbernetes/xbernetes/internal/journal/natslog"
	"github.com/xbernetes/xbernetes/internal/journal/natslog/natstest"
	"github.com/xbernetes/xbernetes/internal/journal/s3log"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog"
	"github.com/xbernetes/xbernetes/internal/journal/sqllog/pgtest"
	"github.com/xbernetes/xbernetes/test/lab/xbetcd"
	"github.com/xbernetes/xbernetes/test/suites/store"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

var workloads = map[string]traffic.Traffic{
	"kubernetes": traffic.Kubernetes,
	"etcd":       traffic.EtcdPutDeleteLease,
}

// TestFaults is three replicas on a journal that fails, loses answers, stalls
// and lets writes land late.
func TestFaults(t *testing.T) {
	for name, workload := range workloads {
		t.Run(name, func(t *testing.T) {
			log := memlog.New(memlog.Options{})
			var endpoints []string
			for i := range 3 {
				seed := rand.Uint64() | 1
				t.Logf("faults of replica %d have the seed %d", i, seed)
				faulty, err := faultlog.New(log.Open(), faultlog.Config{
					Seed: seed, Fail: 0.05, FailApplied: 0.05, Late: 0.05, Delay: 0.2, ReadFail: 0.02, MaxLate: 300 * time.Millisecond, MaxDelay: 20 * time.Millisecond,
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					t.Logf("replica %d met %+v", i, faulty.Counts())
					faulty.Close()
				})
				endpoints = append(endpoints, store.Serve(t, faulty, store.Options{}))
			}
			reports := drive(t, endpoints, workload, func() { <-time.After(8 * time.Second) })
			check(t, workload, reports, persisted(t, log.Open()))
		})
	}
}

// place is a journal that processes of xb etcd are killed on.
type place struct {
	url     string
	env     []string
	servers int
	restart func() error // the store; nil: it goes on
	open    func(context.Context) (journal.Store, error)
}

// places are made for one test each.
var places = map[string]func(*testing.T) place{"file": onFile, "s3": onS3, "postgres": onPostgres, "nats": onNATS}

func onFile(t *testing.T) place {
	at := xbetcd.FileJournal(t)
	return place{url: at, servers: 1, open: func(ctx context.Context) (journal.Store, error) {
		return filelog.OpenReadOnly(ctx, strings.TrimPrefix(at, "file://"))
	}}
}

func onS3(t *testing.T) place {
	const bucket, prefix = "robustness", "journal"
	account := devstore.Account{AccessKey: "vendor", SecretKey: "vendor-secret", Owner: true}
	s3 := storetest.Start(t, devstore.Config{Dir: t.TempDir(), Bucket: bucket, Accounts: []devstore.Account{account}})
	return place{
		url: "s3://" + bucket + "/" + prefix + "?endpoint=" + s3.Endpoint(), servers: 2,
		env: []string{"AWS_ACCESS_KEY_ID=" + account.AccessKey, "AWS_SECRET_ACCESS_KEY=" + account.SecretKey},
		open: func(ctx context.Context) (journal.Store, error) {
			return s3log.Open(ctx, s3log.Config{
				Bucket: bucket, Prefix: prefix, Endpoint: s3.Endpoint(), PathStyle: true, ReadOnly: true,
				Credentials: credentials.NewStaticCredentialsProvider(account.AccessKey, account.SecretKey, ""),
			})
		},
	}
}

func onPostgres(t *testing.T) place {
	db := pgtest.Start(t)
	return place{
		url: db.URL("postgres"), servers: 2,
		restart: func() error { db.Kill(); return db.Restart() },
		open: func(ctx context.Context) (journal.Store, error) {
			u, err := url.Parse(db.URL("postgres"))
			if err != nil {
				return nil, err
			}
			cfg, err := sqllog.ParseURL(u)
			if err != nil {
				return nil, err
			}
			cfg.ReadOnly = true
			return sqllog.Open(ctx, cfg)
		},
	}
}

func onNATS(t *testing.T) place {
	at := natstest.URL("robustness", []string{"synced=true"}, natstest.Start(t, nil))
	return place{url: at, servers: 2, open: func(ctx context.Context) (journal.Store, error) {
		u, err := url.Parse(at)
		if err != nil {
			return nil, err
		}
		cfg, err := natslog.ParseURL(u)
		if err != nil {
			return nil, err
		}
		cfg.ReadOnly = true
		return natslog.Open(ctx, cfg)
	}}
}

// TestKills is processes of xb etcd on one journal: two of them where the journal can be
// shared. Each of them is killed again and again, and so is the store if that is a server.
func TestKills(t *testing.T) {
	for on, begin := range places {
		for name, workload := range workloads {
			t.Run(on+"/"+name, func(t *testing.T) {
				p := begin(t)
				var servers []*xbetcd.Server
				var endpoints []string
				for range p.servers {
					s := xbetcd.Start(t, p.env, p.url)
					servers, endpoints = append(servers, s), append(endpoints, s.Endpoint)
				}
				reports := drive(t, endpoints, workload, func() { p.disturb(t, servers) })
				for _, s := range servers {
					s.Kill() // a file journal is locked until then
				}
				log, err := p.open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer log.Close()
				check(t, workload, reports, persisted(t, log))
			})
		}
	}
}

// disturb kills the servers in turn, and the store once.
func (p place) disturb(t *testing.T, servers []*xbetcd.Server) {
	for i := range 6 {
		<-time.After(time.Second)
		servers[i%len(servers)].Kill()
		if i == 3 && p.restart != nil {
			if err := p.restart(); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(200 * time.Millisecond)
		servers[i%len(servers)].Restart(t)
	}
	<-time.After(time.Second)
}

// TestTampered shows that the validation can fail: it must miss an event that
// a watch did not give, and a value that the journal does not hold.
func TestTampered(t *testing.T) {
	log := memlog.New(memlog.Options{})
	workload := traffic.Kubernetes
	reports := drive(t, []string{store.Serve(t, log.Open(), store.Options{})}, workload, func() { <-time.After(time.Second) })
	requests := persisted(t, log.Open())
	check(t, workload, reports, requests)

	if err := judge(workload, reports, otherValues(requests)).Error(); err == nil {
		t.Error("the journal holds other values, and nothing is said of it")
	}
	dropEvent(t, reports)
	if result := judge(workload, reports, requests); result.Watch.Error() == nil {
		t.Error("a watch lacks an event, and nothing is said of it")
	}
}

// otherValues is requests with another value in every put.
func otherValues(requests []model.EtcdRequest) []model.EtcdRequest {
	requests = slices.Clone(requests)
	for i := range requests {
		if requests[i].Type != model.Txn {
			continue
		}
		txn := *requests[i].Txn
		txn.OperationsOnSuccess = slices.Clone(txn.OperationsOnSuccess)
		for j := range txn.OperationsOnSuccess {
			txn.OperationsOnSuccess[j].Put.Value = model.ToValueOrHash("tampered")
		}
		requests[i].Txn = &txn
	}
	return requests
}

// dropEvent takes one event out of the middle of what one watch gave.
func dropEvent(t *testing.T, reports []report.ClientReport) {
	for i := range reports {
		for j := range reports[i].Watch {
			responses := reports[i].Watch[j].Responses
			for k := 1; k < len(responses)-1; k++ {
				if len(responses[k].Events) == 1 && len(responses[k+1].Events) > 0 {
					responses[k].Events = nil
					return
				}
			}
		}
	}
	t.Fatal("no watch gave three events")
}

// drive puts the workload on the endpoints while disturb runs, and returns
// what all clients saw. Afterwards nothing may be disturbed any more.
func drive(t *testing.T, endpoints []string, workload traffic.Traffic, disturb func()) []report.ClientReport {
	t.Helper()
	traffic.RequestTimeout = time.Second // there are more tests than cores
	baseTime, ids := time.Now(), identity.NewIDProvider()
	workers, watchers := client.NewSet(ids, baseTime), client.NewSet(ids, baseTime)
	defer workers.Close()
	defer watchers.Close()
	if err := traffic.CheckEmptyDatabaseAtStart(t.Context(), zap.NewNop(), endpoints, workers); err != nil {
		t.Fatal(err)
	}
	var g errgroup.Group
	lastRevision := make(chan int64, 1)
	g.Go(func() error {
		return client.CollectClusterWatchEvents(t.Context(), client.CollectClusterWatchEventsParam{
			Lg: zap.NewNop(), Endpoints: endpoints, MaxRevisionChan: lastRevision, ClientSet: watchers,
		})
	})
	wait := simulate(t, workers, endpoints, workload)
	disturb()
	wait()
	lastRevision <- lastWrite(t, workers, endpoints)
	if err := g.Wait(); err != nil {
		t.Fatalf("watch until the end: %v", err)
	}
	return slices.Concat(workers.Reports(), watchers.Reports())
}

// simulate starts clients that read, write, watch and compact. The function it
// returns stops them.
func simulate(t *testing.T, clients *client.ClientSet, endpoints []string, workload traffic.Traffic) (stop func()) {
	t.Helper()
	profile := traffic.KeyValueMedium
	watches := traffic.WatchDefault
	compaction := traffic.CompactionDefault
	limiter := rate.NewLimiter(rate.Limit(profile.MaximalQPS), profile.BurstableQPS)
	keys, objects := traffic.NewKeyStore(10, "key"), traffic.NewKubernetesStorage()
	finish := make(chan struct{})
	var wg sync.WaitGroup
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(traffic.SimulateKeyValueTraffic(t.Context(), &wg, &profile, endpoints, clients, workload, traffic.RunTrafficLoopParam{
		QPSLimiter:                         limiter,
		IDs:                                clients.IdentityProvider(),
		LeaseIDStorage:                     identity.NewLeaseIDStorage(),
		NonUniqueRequestConcurrencyLimiter: traffic.NewConcurrencyLimiter(profile.MaxNonUniqueRequestConcurrency),
		KeyStore:                           keys, Storage: objects, Finish: finish,
	}))
	must(traffic.SimulateWatchTraffic(t.Context(), &wg, &watches, endpoints, clients, workload, traffic.RunWatchLoopParam{
		Config: watches, QPSLimiter: limiter, KeyStore: keys, Storage: objects, Finish: finish, Logger: zap.NewNop(),
	}))
	must(traffic.SimulateCompactionTraffic(t.Context(), &wg, &compaction, endpoints, clients, workload, traffic.RunCompactLoopParam{
		Period: compaction.Period, Finish: finish,
	}))
	return func() {
		close(finish)
		wg.Wait()
	}
}

// lastWrite writes once more, which must succeed for what was unknown before
// to be settled, and returns its revision.
func lastWrite(t *testing.T, clients *client.ClientSet, endpoints []string) int64 {
	t.Helper()
	c, err := clients.NewClient(endpoints)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		resp, err := c.Put(ctx, "tombstone", "true")
		cancel()
		if err == nil {
			return resp.Header.Revision
		}
		if t.Context().Err() != nil {
			t.Fatalf("the last write does not succeed: %v", err)
		}
	}
}

func judge(workload traffic.Traffic, reports []report.ClientReport, requests []model.EtcdRequest) validate.RobustnessResult {
	return judgeTo(zap.NewNop(), workload, reports, requests)
}

func judgeTo(log *zap.Logger, workload traffic.Traffic, reports []report.ClientReport, requests []model.EtcdRequest) validate.RobustnessResult {
	return validate.ValidateAndReturnVisualize(log, validate.Config{ExpectRevisionUnique: workload.ExpectUniqueRevision()}, reports, requests, 5*time.Minute)
}

// check fails the test unless etcd's validation has looked at everything, and
// found nothing.
func check(t *testing.T, workload traffic.Traffic, reports []report.ClientReport, requests []model.EtcdRequest) {
	t.Helper()
	operations, failed, events := 0, 0, 0
	for _, r := range reports {
		operations += len(r.KeyValue)
		events += r.WatchEventCount()
		for _, op := range r.KeyValue {
			if op.Output.(model.MaybeEtcdResponse).Error != "" {
				failed++
			}
		}
	}
	t.Logf("%d operations, %d of them without an answer; %d events; %d requests in the journal", operations, failed, events, len(requests))
	result := judgeTo(zaptest.NewLogger(t, zaptest.Level(zapcore.ErrorLevel)), workload, reports, requests)
	for name, part := range map[string]validate.Result{
		"assumptions": result.Assumptions, "linearization": result.Linearization.Result, "watch": result.Watch, "serializable": result.Serializable,
	} {
		if part.Status != validate.Success {
			t.Errorf("%s: %v", name, part)
		}
	}
}
