package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// grpcClient repeats one request with little code, because a client library takes longer than
// servers.
type grpcClient struct {
	conn   net.Conn
	out    *bufio.Writer
	frames *http2.Framer
	head   []byte
	body   []byte
	stream uint32
}

// passes begins an answer that allows a request.
var passes = []byte{8, 1}

func overGRPC(to server, addr string) load {
	return load{to, connections, 1, func(ctx context.Context, i int) (client, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		c := &grpcClient{conn: conn, out: bufio.NewWriter(conn), body: question(i), stream: 1}
		c.frames = http2.NewFramer(c.out, bufio.NewReader(conn))
		c.head = head(addr)
		if _, err = c.out.WriteString(http2.ClientPreface); err == nil {
			err = c.frames.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize})
		}
		if err == nil {
			err = c.frames.WriteWindowUpdate(0, 1<<30)
		}
		return c, err
	}}
}

func question(client int) []byte {
	field := func(number byte, text string) string {
		return string([]byte{number<<3 | 2, byte(len(text))}) + text
	}
	entry := field(1, "key") + field(2, fmt.Sprintf("k%d", client))
	text := field(1, "bench") + field(2, field(1, entry))
	return append([]byte{0, 0, 0, 0, byte(len(text))}, text...)
}

// head begins a request and refers to no earlier one.
func head(addr string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSizeLimit(0)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"},
		{":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"},
		{":authority", addr}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return b.Bytes()
}

func (c *grpcClient) close() { _ = c.conn.Close() }

func (c *grpcClient) ask(context.Context) error {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	err := c.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream,
		BlockFragment: c.head, EndHeaders: true})
	if err == nil {
		err = c.frames.WriteData(c.stream, true, c.body)
	}
	if err == nil {
		err = c.out.Flush()
	}
	if err != nil {
		return fmt.Errorf("send a request: %w", err)
	}
	c.stream += 2
	if err := c.answer(); err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	return nil
}

func (c *grpcClient) answer() error {
	passed := false
	for {
		frame, err := c.frames.ReadFrame()
		if err != nil {
			return err
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			passed = len(f.Data()) > 5 && bytes.HasPrefix(f.Data()[5:], passes)
		case *http2.HeadersFrame:
			if !f.StreamEnded() {
				continue
			}
			if !passed {
				return errors.New("it lets nothing pass")
			}
			return nil
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = c.frames.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = c.frames.WritePing(true, f.Data)
			}
		case *http2.RSTStreamFrame:
			// the server answered before it saw the request's end
			if f.StreamID == c.stream-2 {
				err = fmt.Errorf("the server sent %v", f)
			}
		case *http2.GoAwayFrame:
			err = fmt.Errorf("the server sent %v", f)
		}
		if err != nil {
			return err
		}
	}
}
