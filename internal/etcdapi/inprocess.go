package etcdapi

import "github.com/xbernetes/xbernetes/internal/pipe"

// The buffers of a connection in process, in bytes: of the pipe in each
// direction, and of the server's reader. They are small because an API server
// opens a connection for each resource; large lists would go faster with more.
const (
	inProcessBuffer = 32 << 10
	inProcessRead   = 8 << 10
)

// ListenInProcess returns a listener for clients in this process, to be given to
// Serve. Clients connect by its Dial; there is no port.
func ListenInProcess() *pipe.Listener { return pipe.Listen(inProcessBuffer) }
