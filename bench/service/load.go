package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/bench/paper"
)

type sample struct {
	perSecond float64
	p50, p99  time.Duration
	cpu       time.Duration // of the server per question or job; 0: unknown
}

type client interface {
	ask(ctx context.Context) error
	close()
}

type load struct {
	to            server
	clients, jobs int
	open          func(ctx context.Context, i int) (client, error)
}

func (l load) run(ctx context.Context, length time.Duration) (s sample, err error) {
	clients := make([]client, l.clients)
	defer func() {
		for _, c := range clients {
			if c != nil {
				c.close()
			}
		}
	}()
	for i := range clients {
		if clients[i], err = l.open(ctx, i); err != nil {
			return s, err
		}
	}
	if _, err := together(ctx, clients, length/4); err != nil {
		return s, err
	}
	began, before := time.Now(), l.to.cpu()
	took, err := together(ctx, clients, length)
	if err != nil {
		return s, err
	}
	elapsed, used, asked := time.Since(began), l.to.cpu()-before, l.jobs*len(took)
	slices.Sort(took)
	return sample{float64(asked) / elapsed.Seconds(), paper.Quantile(took, 0.5),
		paper.Quantile(took, 0.99), used / time.Duration(asked)}, nil
}

func together(ctx context.Context, clients []client,
	length time.Duration) (took []time.Duration, err error) {
	each := make([][]time.Duration, len(clients))
	errs := make([]error, len(clients))
	var asking sync.WaitGroup
	for i, c := range clients {
		asking.Go(func() {
			begin := time.Now()
			for end := begin.Add(length); begin.Before(end); {
				if errs[i] = c.ask(ctx); errs[i] != nil {
					return
				}
				now := time.Now()
				each[i] = append(each[i], now.Sub(begin))
				begin = now
			}
		})
	}
	asking.Wait()
	return slices.Concat(each...), errors.Join(errs...)
}

// httpClient repeats one request on a kept connection, cheaply, because it shares the machine with
// the server.
type httpClient struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	want    int
	inBody  func(body []byte) error
}

func overHTTP(to server, clients, want int, request func(client int) []byte) load {
	return load{to, clients, 1, func(ctx context.Context, i int) (client, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", to["http"])
		if err != nil {
			return nil, err
		}
		return &httpClient{conn: conn, in: bufio.NewReader(conn), request: request(i),
			want: want}, nil
	}}
}

func request(method, path string, body []byte, head ...string) []byte {
	return append(fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", method, path, len(body),
		strings.Join(append(head, ""), "\r\n")), body...)
}

func (c *httpClient) close() { _ = c.conn.Close() }

func (c *httpClient) ask(context.Context) error {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return fmt.Errorf("send a request: %w", err)
	}
	status, length, err := c.head()
	if err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	if status != c.want {
		return fmt.Errorf("answered %d, want %d", status, c.want)
	}
	if c.inBody == nil && length >= 0 {
		_, err := c.in.Discard(length)
		return err
	}
	body, err := c.body(length)
	if err != nil || c.inBody == nil {
		return err
	}
	return c.inBody(body)
}

// head reads an answer's status and length, -1 if chunked.
func (c *httpClient) head() (status, length int, err error) {
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case first && len(line) >= 12:
			status, err = strconv.Atoi(string(line[9:12]))
		case bytes.EqualFold(name, []byte("Content-Length")):
			length, err = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = -1
		case len(line) == 0:
			return status, length, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

func (c *httpClient) body(length int) ([]byte, error) {
	if length < 0 {
		body, err := io.ReadAll(httputil.NewChunkedReader(c.in))
		if err == nil {
			_, err = c.in.Discard(len("\r\n"))
		}
		return body, err
	}
	body := make([]byte, length)
	_, err := io.ReadFull(c.in, body)
	return body, err
}
