package envoy

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"google.golang.org/grpc/peer"
)

// Streams that enter at the same moment end one older stream each.
func TestStreamsThatEnterTogetherAreBounded(t *testing.T) {
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}})
	for range 20 {
		q := &silence{clients: map[netip.Addr]*list.List{}}
		var together sync.WaitGroup
		for range 4 * mostSilentOfClient {
			together.Go(func() { q.enter(ctx, false) })
		}
		together.Wait()
		if n := q.all.Len(); n > mostSilentOfClient {
			t.Fatalf("%d streams have not sent a message, want at most %d", n, mostSilentOfClient)
		}
		for e := q.all.Front(); e != nil; e = q.all.Front() {
			s := e.Value.(*stream)
			s.end(context.Canceled)
			q.leave(s)
		}
	}
}
