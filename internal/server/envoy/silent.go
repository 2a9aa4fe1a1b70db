package envoy

import (
	"container/list"
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/penstock-mq/penstock/internal/server/lifecycle"
)

const (
	// Streams without a message, of all clients and of one. grpc-go keeps 13 kB of each, mostly for
	// the stack of its goroutine, which waits for the message.
	mostSilent         = 4096
	mostSilentOfClient = 1024
	// for a stream's message; clients send it with the headers
	firstWithin = 5 * time.Second
)

// silence bounds the streams that have not sent a message: beyond its limits the oldest one ends,
// with Canceled. Gateways send a message with the headers, so the oldest streams are not theirs.
type silence struct {
	limits lifecycle.HTTPOptions

	mu      sync.Mutex
	all     list.List // of *stream, the oldest first, as in the next
	clients map[netip.Addr]*list.List
}

// stream is the context of a request.
type stream struct {
	context.Context
	end   context.CancelCauseFunc
	timer *time.Timer
	lasts bool // without a deadline, after its message

	client      netip.Addr
	inAll, inIt *list.Element // nil after its message or end
}

type streamKey struct{}

func (s *stream) Value(key any) any {
	if key == (streamKey{}) {
		return s
	}
	return s.Context.Value(key)
}

func (s *stream) Err() error {
	if errors.Is(context.Cause(s.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return s.Context.Err()
}

// enter returns the context of a new stream. A stream that lasts has no deadline after its message.
func (q *silence) enter(ctx context.Context, lasts bool) *stream {
	s := &stream{lasts: lasts}
	s.Context, s.end = context.WithCancelCause(ctx)
	bounded := false
	if p, ok := peer.FromContext(ctx); ok {
		s.client, bounded = q.limits.Client(p.Addr)
	}
	s.timer = time.AfterFunc(firstWithin, func() { s.end(context.DeadlineExceeded) })
	q.mu.Lock()
	s.inAll = q.all.PushBack(s)
	of := q.clients[s.client]
	if of == nil {
		of = list.New()
		q.clients[s.client] = of
	}
	s.inIt = of.PushBack(s)
	var oldest *stream
	switch {
	case bounded && of.Len() > mostSilentOfClient:
		oldest = of.Front().Value.(*stream)
	case q.all.Len() > mostSilent:
		oldest = q.all.Front().Value.(*stream)
	}
	if oldest != nil {
		q.remove(oldest) // at once: the next one that enters must find another
	}
	q.mu.Unlock()
	if oldest != nil {
		oldest.end(context.Canceled)
	}
	context.AfterFunc(s.Context, func() {
		s.timer.Stop()
		q.leave(s)
	})
	return s
}

func (q *silence) leave(s *stream) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(s)
}

// remove is called with q.mu held.
func (q *silence) remove(s *stream) {
	if s.inAll == nil {
		return
	}
	q.all.Remove(s.inAll)
	of := q.clients[s.client]
	if of.Remove(s.inIt); of.Len() == 0 {
		delete(q.clients, s.client)
	}
	s.inAll, s.inIt = nil, nil
}

// heard notes a message of the stream.
func (q *silence) heard(ctx context.Context) {
	s, ok := ctx.Value(streamKey{}).(*stream)
	if !ok {
		return
	}
	if q.leave(s); s.lasts {
		s.timer.Stop()
	} else if s.timer.Stop() {
		s.timer.Reset(mostTime)
	}
}

func (q *silence) unary(ctx context.Context, r any, _ *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (any, error) {
	q.heard(ctx)
	return handle(ctx, r)
}

func (q *silence) streams(of any, s grpc.ServerStream, _ *grpc.StreamServerInfo,
	handle grpc.StreamHandler) error {
	return handle(of, &hearing{ServerStream: s, silence: q})
}

type hearing struct {
	grpc.ServerStream
	silence *silence
	once    sync.Once
}

func (h *hearing) RecvMsg(m any) error {
	err := h.ServerStream.RecvMsg(m)
	if err == nil {
		h.once.Do(func() { h.silence.heard(h.Context()) })
	}
	return err
}
