package etcdapi

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// question is a hot request: it reads itself from its message, and keeps no
// reference to b. What is wrong with the message is the error; what is wrong
// with what it asks, it keeps to say later, in etcd's words.
type question interface {
	parse(b []byte) error
}

// answer is a hot response: it writes its message, of about size bytes.
type answer interface {
	size() int
	append(b []byte) []byte
}

// codec carries hot messages between the wire and the state machine's types,
// with nothing in between; the others are plain protocol buffers.
type codec struct {
	encoding.CodecV2
}

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	a, ok := v.(answer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := a.size()
	if mem.IsBelowBufferPoolingThreshold(size) {
		return mem.BufferSlice{mem.SliceBuffer(a.append(make([]byte, 0, size)))}, nil
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(size)
	*buf = a.append((*buf)[:0])
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	q, ok := v.(question)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return q.parse(buf.ReadOnlyData())
}
