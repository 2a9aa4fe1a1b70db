package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// fillLean makes a policy's stream deliver without bodies: over 16 MiB, in large messages that wait
// in a separate bucket until the far future.
func (b *bench) fillLean(policy string) {
	b.t.Helper()
	body := bytes.Repeat([]byte("x"), 1<<20)
	for range 17 {
		m := &nats.Msg{Subject: "penstock.jobs." + policy + ".large", Data: body,
			Header: nats.Header{"Penstock-Not-Before": {"24h"}}}
		if _, err := b.nc.RequestMsg(m, deadline); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) raw(subject, block, body string) {
	b.t.Helper()
	// A Msg cannot hold invalid headers, so write the protocol directly.
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.server.URL(), "nats://"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	reply := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(reply)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		b.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		b.t.Fatal(err)
	}
	fmt.Fprintf(conn,
		"CONNECT {\"headers\":true,\"verbose\":false,\"echo\":true,\"no_responders\":true}\r\n"+
			"HPUB %s %s %d %d\r\n%s%s\r\n",
		subject, reply, len(block), len(block)+len(body), block, body)
	answer, err := sub.NextMsg(deadline)
	if err != nil || !strings.Contains(string(answer.Data), `"seq"`) {
		b.t.Fatalf("publish with headers %q: %v, %v", block, answer, err)
	}
}

// poison lists headers that plain NATS clients may send, and that resemble the server's headers
// when bodies are read one by one. They must not block the next job in their bucket.
var poison = map[string]nats.Header{
	"time":      {"Nats-Time-Stamp": {"garbage"}},
	"subject":   {"Nats-Subject": {"penstock.jobs.api.other"}},
	"nosubject": {"Nats-Subject": {""}, "Status": {"404"}},
	"status":    {"Status": {"503"}, "Description": {"no"}},
	"size":      {"Nats-Msg-Size": {"garbage"}},
	"huge":      {"Nats-Msg-Size": {"999999999"}},
	"sequence":  {"Nats-Sequence": {"1"}, "Nats-Stream": {"PENSTOCK_DEAD"}},
}

// A message with "Nats-Time-Stamp: garbage" used to block its bucket forever.
func TestNoHeaderOfAPublisherBlocksABucket(t *testing.T) {
	p := leaky("api", "1000/s")
	p.Partitions = 1
	b := newBench(t, p)
	b.fillLean("api")
	for key, header := range poison {
		body := []byte(strings.Repeat("p", 5000))
		for _, m := range []*nats.Msg{
			{Subject: "penstock.jobs.api." + key, Header: header, Data: body},
			{Subject: "penstock.jobs.api." + key, Data: []byte("behind it")},
		} {
			if _, err := b.nc.RequestMsg(m, deadline); err != nil {
				t.Fatal(err)
			}
		}
	}
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	for key := range poison {
		b.until("the job behind "+key+" ran", func() bool {
			return len(ran.bodies(queue.Key(key))) == 2
		})
		if got := ran.bodies(queue.Key(key)); len(got[0]) != 5000 || got[1] != "behind it" {
			t.Errorf("%s: ran with %d and %q", key, len(got[0]), got[1])
		}
	}
}

func TestADeadlineFreesThePlaceOfPoison(t *testing.T) {
	t.Parallel()
	p := leaky("api", "1/h")
	p.Partitions = 1
	b := newBench(t, p)
	b.fillLean("api")
	for key, header := range poison {
		h := nats.Header{"Penstock-Deadline": {"1s"}, "Penstock-Not-Before": {"1h"}}
		for name, values := range header {
			h[name] = values
		}
		m := &nats.Msg{Subject: "penstock.jobs.api." + key, Header: h, Data: []byte("poison")}
		if _, err := b.nc.RequestMsg(m, deadline); err != nil {
			t.Fatal(err)
		}
	}
	var ran seen
	b.drain(Options{}, map[string]Handler{"api": ran.handle})
	b.until("all are dead letters", func() bool {
		letters, err := b.broker.Letters("api").List(t.Context(), 0, 100)
		return err == nil && len(letters) == len(poison)
	})
	letters, err := b.broker.Letters("api").List(t.Context(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		letter, err := b.broker.Letters("api").Read(t.Context(), l.ID)
		if err != nil || letter.Reason != "deadline" || string(letter.Body) != "poison" {
			t.Errorf("%s: %q with %q, %v", letter.Key, letter.Reason, letter.Body, err)
		}
	}
	b.until("their places are free", func() bool {
		n, err := b.broker.Depth(t.Context(), "api")
		return err == nil && n == 17
	})
}

// exceptGarbledHeaders prints a connection's errors as nats.go would, except those of the test's
// messages.
func exceptGarbledHeaders(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrBadHeaderMsg) {
		fmt.Fprintln(os.Stderr, "nats:", err)
	}
}

// In a stream of small jobs they used to run without headers, and one whose body was read
// separately blocked its bucket.
func TestHeadersThatCannotBeReadMakeADeadLetter(t *testing.T) {
	for _, lean := range []bool{false, true} {
		t.Run(fmt.Sprintf("lean %v", lean), func(t *testing.T) {
			p := leaky("api", "1000/s")
			p.Partitions = 1
			server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Shutdown)
			b := &bench{t: t, server: server, onError: exceptGarbledHeaders}
			b.setUp(p)
			if lean {
				b.fillLean("api")
			}
			blocks := []string{"NATS/1.0\r\nno colon\r\n\r\n", "garbage\r\n\r\n",
				"NATS/1.0\r\nPenstock-Cost: 2"}
			for i, block := range blocks {
				b.raw(fmt.Sprintf("penstock.jobs.api.k%d", i), block, "poison")
				b.publish("api", fmt.Sprintf("k%d", i), 7, 1)
			}
			var ran seen
			b.drain(Options{}, map[string]Handler{"api": ran.handle})
			for i, block := range blocks {
				key := fmt.Sprintf("k%d", i)
				b.until("the job behind it ran", func() bool {
					got := ran.bodies(queue.Key(key))
					return len(got) > 0 && got[len(got)-1] == "7"
				})
				b.until("the place is free", func() bool {
					n, err := b.broker.BucketDepth(t.Context(), "api", 0, queue.Key(key))
					return err == nil && n == 0
				})
				if got := ran.bodies(queue.Key(key)); len(got) != 1 {
					t.Errorf("%q ran: %q", block, got)
				} else if reason := b.deadLetter("api", key); reason != "malformed" {
					t.Errorf("%q became a dead letter for %q", block, reason)
				}
			}
			letters, err := b.broker.Letters("api").List(t.Context(), 0, 100)
			if err != nil || len(letters) != len(blocks) {
				t.Fatalf("%d letters, %v", len(letters), err)
			}
			letter, err := b.broker.Letters("api").Read(t.Context(), letters[0].ID)
			if err != nil || string(letter.Body) != "poison" {
				t.Errorf("the letter holds %q, %v", letter.Body, err)
			}
		})
	}
}

func TestAReplayedJobRunsWithTheKeyOfItsFirstRun(t *testing.T) {
	b := newBench(t, leaky("api", "1000/s"))
	var mu sync.Mutex
	var keys []string
	b.drain(Options{}, map[string]Handler{"api": func(_ context.Context, job Job) error {
		mu.Lock()
		defer mu.Unlock()
		if keys = append(keys, job.IdempotencyKey); len(keys) == 1 {
			return Permanent(errors.New("the answer was lost"))
		}
		return nil
	}})
	b.publish("api", "a", 0, 1)
	b.empty("api")
	letters, err := b.broker.Letters("api").List(t.Context(), 0, 10)
	if err != nil || len(letters) != 1 {
		t.Fatalf("%v, %v", letters, err)
	}
	if _, err := b.broker.NewProducer(jet.ProducerOptions{}).Replay(t.Context(), "api",
		letters[0].ID); err != nil {
		t.Fatal(err)
	}
	b.until("the replay ran", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(keys) == 2
	})
	if keys[0] != keys[1] || !strings.HasSuffix(keys[0], "-1") {
		t.Errorf("ran as %v", keys)
	}
}
