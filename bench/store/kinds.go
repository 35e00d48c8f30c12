package store

import (
	"fmt"
	"path/filepath"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// A Kind starts an etcd API on an empty directory.
type Kind struct {
	Name  string
	Start func(cfg measure.Config, dir string) (*Store, error)
}

// What is measured with a file or a folder of its own as its place.
var (
	XBFile = Kind{"xb, file", func(cfg measure.Config, dir string) (*Store, error) {
		addr := network.FreeAddr("127.0.0.1")
		s, err := measure.Launch(dir, "xb", nil, cfg.XB, "etcd", "--journal", "file://"+filepath.Join(dir, "journal"), "--listen", addr)
		return &Store{Servers: []*process.Process{s}, Endpoint: "http://" + addr}, err
	}}
	Etcd = Kind{"etcd", func(cfg measure.Config, dir string) (*Store, error) {
		client, peer := "http://"+network.FreeAddr("127.0.0.1"), "http://"+network.FreeAddr("127.0.0.1")
		s, err := measure.Launch(dir, "etcd", nil, filepath.Join(cfg.Bin, "etcd"), "--data-dir", filepath.Join(dir, "data"), "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
			"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--quota-backend-bytes", fmt.Sprint(8<<30))
		return &Store{Servers: []*process.Process{s}, Endpoint: client}, err
	}}
)

// on is the etcd API of a program on a data service, which is started with it.
func on(name string, serve func(cfg measure.Config, dir string) (service, error), run func(cfg measure.Config, dir, addr string, s service) (*process.Process, error)) Kind {
	return Kind{name, func(cfg measure.Config, dir string) (*Store, error) {
		var s service
		var servers []*process.Process
		if serve != nil {
			var err error
			if s, err = serve(cfg, dir); err != nil {
				return nil, err
			}
			servers = append(servers, s.server)
		}
		addr := network.FreeAddr("127.0.0.1")
		p, err := run(cfg, dir, addr, s)
		if err != nil {
			measure.End(servers...)
			return nil, err
		}
		return &Store{Servers: append([]*process.Process{p}, servers...), Endpoint: "http://" + addr}, nil
	}}
}

func xbOn(journal func(s service) string) func(cfg measure.Config, dir, addr string, s service) (*process.Process, error) {
	return func(cfg measure.Config, dir, addr string, s service) (*process.Process, error) {
		return measure.Launch(dir, "xb", nil, cfg.XB, "etcd", "--journal", journal(s), "--listen", addr)
	}
}

func kineOn(endpoint func(dir string, s service) string) func(cfg measure.Config, dir, addr string, s service) (*process.Process, error) {
	return func(cfg measure.Config, dir, addr string, s service) (*process.Process, error) {
		return measure.Launch(dir, "kine", nil, filepath.Join(cfg.Bin, "kine"), "--listen-address", "tcp://"+addr, "--metrics-bind-address", "0", "--endpoint", endpoint(dir, s))
	}
}

func databases(_ measure.Config, dir string) (service, error) { return postgreSQL(dir) }

// What is measured with its data in a data service, or as kine keeps it.
var (
	XBPostgres = on("xb, PostgreSQL", databases, xbOn(func(s service) string { return "postgres://postgres@" + s.addr + "/postgres" }))
	XBNATS     = on("xb, NATS", jetStream, xbOn(func(s service) string { return "nats://" + s.addr + "/bench?synced=true" }))
	// Its default is _synchronous=NORMAL, with which a commit that was acknowledged can be lost.
	KineSQLite = on("kine, SQLite", nil, kineOn(func(dir string, _ service) string {
		return "sqlite://" + filepath.Join(dir, "state.db") + "?_journal_mode=WAL&_busy_timeout=30000&_synchronous=FULL&_txlock=immediate&_stmt_cache_size=20&cache=shared"
	}))
	KinePostgres = on("kine, PostgreSQL", databases, kineOn(func(_ string, s service) string {
		return "postgres://postgres:any@" + s.addr + "/kine?sslmode=disable"
	}))
	KineNATS = on("kine, NATS", jetStream, kineOn(func(_ string, s service) string { return "nats://" + s.addr }))
)
