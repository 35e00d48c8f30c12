package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"github.com/xbernetes/xbernetes/bench/measure"
	"github.com/xbernetes/xbernetes/test/lab/network"
	"github.com/xbernetes/xbernetes/test/lab/process"
)

// service is a data service that a store keeps its data in.
type service struct {
	server *process.Process
	addr   string // HOST:PORT
}

// postgreSQL starts a database server with its data in dir, which syncs every commit, as is
// its default.
func postgreSQL(dir string) (service, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // where Debian puts it
	if err != nil || len(found) == 0 {
		return service{}, fmt.Errorf("find PostgreSQL's initdb below /usr/lib/postgresql: %w", exec.ErrNotFound)
	}
	programs, data := filepath.Dir(found[len(found)-1]), filepath.Join(dir, "postgres")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(data, 0o700)); err != nil {
		return service{}, err
	}
	as, err := unprivileged(data)
	if err != nil {
		return service{}, err
	}
	init := append(as, filepath.Join(programs, "initdb"), "--pgdata", data, "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--locale", "C")
	made := exec.Command(init[0], init[1:]...)
	made.Dir = "/"
	if out, err := made.CombinedOutput(); err != nil {
		return service{}, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	addr := network.FreeAddr("127.0.0.1")
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return service{}, err
	}
	run := append(as, filepath.Join(programs, "postgres"), "-D", data,
		"-c", "listen_addresses=127.0.0.1", "-c", "port="+port, "-c", "unix_socket_directories=", "-c", "max_connections=300")
	return awaited(dir, "postgres", addr, "ready to accept connections", run)
}

// unprivileged is how a command is begun that must not run as root, and to whom data is given
// for that. If we are not root, it is nothing.
func unprivileged(data string) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	return []string{"setpriv", "--reuid", u.Uid, "--regid", u.Gid, "--clear-groups", "--pdeathsig", "KILL"}, os.Chown(data, uid, gid)
}

// jetStream starts a NATS server with its data in dir, which syncs every message.
func jetStream(cfg measure.Config, dir string) (service, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return service{}, err
	}
	addr, file := network.FreeAddr("127.0.0.1"), filepath.Join(dir, "nats.conf")
	settings := fmt.Sprintf("listen: %q\nmax_payload: 9MB\njetstream { store_dir: %q, sync_interval: always }\n", addr, filepath.Join(dir, "nats"))
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return service{}, err
	}
	return awaited(dir, "nats", addr, "Server is ready", []string{filepath.Join(cfg.Bin, "nats-server"), "--config", file})
}

// awaited starts a server, and returns once it has printed that it is ready. Its port is open
// before that.
func awaited(dir, name, addr, ready string, argv []string) (service, error) {
	server, err := measure.Launch(dir, name, nil, argv...)
	if err != nil {
		return service{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := server.AwaitLine(ctx, ready); err != nil {
		measure.End(server)
		return service{}, err
	}
	return service{server, addr}, nil
}
