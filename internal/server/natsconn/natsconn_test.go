package natsconn_test

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/server/natsconn"
	"github.com/penstock-mq/penstock/queue/embedded"
)

var eventually = waittest.Until

func start(t *testing.T, address string) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: address})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connections(t *testing.T, w *natsconn.Watch, url string, n int) []*nats.Conn {
	t.Helper()
	var all []*nats.Conn
	for i := range n {
		nc, err := nats.Connect(url, w.Options(fmt.Sprint("connection ", i))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		all = append(all, nc)
	}
	return all
}

func TestOneLinePerOutageAndOnePerReturn(t *testing.T) {
	address := proctest.FreeAddress(t)
	log := &waittest.Log{}
	w := natsconn.NewWatch(slog.New(slog.NewTextHandler(log, nil)))
	all := connections(t, w, "nats://"+address, 3)
	connected := func(want bool) func() bool {
		return func() bool {
			for _, nc := range all {
				if nc.IsConnected() != want {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "it is said that NATS cannot be reached", func() bool {
		return log.Count("level=WARN") == 1
	})
	for outages := 1; outages <= 2; outages++ {
		s := start(t, address)
		eventually(t, "all are connected", func() bool {
			return log.Count("level=INFO") == outages && connected(true)()
		})
		if outages == 2 {
			break
		}
		s.Shutdown()
		eventually(t, "all are away", connected(false))
		eventually(t, "the loss is logged", func() bool {
			return log.Count("level=WARN") == outages+1
		})
	}
	if warned, told := log.Count("level=WARN"), log.Count("level=INFO"); warned != 2 || told != 2 {
		t.Errorf("%d lines of two outages, %d of their ends:\n%s", warned, told, log)
	}
}

// 5,000 messages with unreadable headers once wrote 5,000 lines.
func TestErrorsOfASubscriptionAreNoFlood(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	log := &waittest.Log{}
	nc := connections(t,
		natsconn.NewWatch(
			slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		s.URL(), 1)[0]
	heard := make(chan struct{}, 5000)
	if _, err := nc.Subscribe("jobs", func(*nats.Msg) { heard <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	raw, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	const header = "NATS/1.0\r\nno colon here\r\n\r\n"
	message := fmt.Sprintf("HPUB jobs %d %d\r\n%sx\r\n", len(header), len(header)+1, header)
	if _, err := raw.Write(
		[]byte("CONNECT {\"verbose\":false,\"headers\":true}\r\n" +
			strings.Repeat(message, 5000))); err != nil {
		t.Fatal(err)
	}
	for range 5000 {
		select {
		case <-heard:
		case <-time.After(waittest.Patience()):
			t.Fatal("a message is missing")
		}
	}
	eventually(t, "the error is logged", func() bool { return log.Count("NATS reports") > 0 })
	if lines := log.Count("\n"); lines > 10 {
		t.Errorf("%d lines", lines)
	}
}
