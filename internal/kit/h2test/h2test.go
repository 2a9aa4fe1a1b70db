// Package h2test has an HTTP/2 server that answers with any frames.
package h2test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/certtest"
)

// OK is a whole answer with status 200.
func OK(stream uint32) []byte { return frame(1, 5, stream, 0x88) }

// Refuse resets the stream with REFUSED_STREAM.
func Refuse(stream uint32) []byte { return frame(3, 0, stream, 0, 0, 0, 7) }

// Leave ends the connection gracefully. Streams after the last one are not processed.
func Leave(last uint32) []byte {
	return frame(7, 0, 0, binary.BigEndian.AppendUint64(nil, uint64(last)<<32)...)
}

func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	head := []byte{0, 0, byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(head, stream), payload...)
}

// Serve answers each request with frames, and returns the server's URL.
func Serve(t testing.TB, by *certtest.Authority, answer func(stream uint32) []byte) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(by.Issue("localhost"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(t.Context(), func() { conn.Close() })
			served.Go(func() { serve(conn, answer) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		served.Wait()
	})
	return "https://" + listener.Addr().String()
}

func serve(conn net.Conn, answer func(stream uint32) []byte) {
	defer conn.Close()
	_, err := io.CopyN(io.Discard, conn, 24) // the client's preface
	if err == nil {
		_, err = conn.Write(frame(4, 0, 0))
	}
	for head := make([]byte, 9); err == nil; {
		if _, err = io.ReadFull(conn, head); err == nil {
			length := binary.BigEndian.Uint32(head) >> 8
			_, err = io.CopyN(io.Discard, conn, int64(length))
		}
		if err == nil && head[3] == 1 { // HEADERS
			_, err = conn.Write(answer(binary.BigEndian.Uint32(head[5:])))
		}
	}
}
