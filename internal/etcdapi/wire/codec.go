// Package wire reads etcd's frequent requests from their messages into the state
// machine's types, and writes the responses from these, with no generated type in
// between. It answers nothing, and never looks at the state.
//
// Frequent are Range, Put, DeleteRange, Txn, and what a watch sends. Everything
// else goes through the generated types. ADR 13 says why, and what it saves.
//
// Field numbers are those of etcd's rpc.proto and kv.proto.
package wire

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// A request reads itself from its message, and keeps no reference to b. parse
// returns an error if b is no such message. If the message asks for something
// that etcd refuses, parse returns nil, and the request's Invalid says it.
type request interface {
	parse(b []byte) error
}

// A response appends its message to b; size is no less than the bytes it takes.
type response interface {
	size() int
	append(b []byte) []byte
}

// Codec is grpc's codec of protocol buffers, which also knows the requests and
// responses of this package.
type Codec struct {
	encoding.CodecV2
}

// NewCodec returns a Codec.
func NewCodec() Codec { return Codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(response)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size := r.size()
	if mem.IsBelowBufferPoolingThreshold(size) {
		return mem.BufferSlice{mem.SliceBuffer(r.append(make([]byte, 0, size)))}, nil
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(size)
	*buf = r.append((*buf)[:0])
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return r.parse(buf.ReadOnlyData())
}
