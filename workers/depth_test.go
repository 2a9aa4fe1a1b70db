package workers

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// TestJobsThatDoNotFitTheMemoryAreReadAgain publishes three times what fits into memory. Every job
// runs in order, with its body and headers.
func TestJobsThatDoNotFitTheMemoryAreReadAgain(t *testing.T) {
	b := newBench(t, with(leaky("api", "5000/s"), func(p *policy.Policy) { p.Partitions = 1 }))
	const jobs = 750
	js, err := b.nc.JetStream(nats.MaxWait(deadline))
	if err != nil {
		t.Fatal(err)
	}
	body := func(key string, n int) []byte {
		return append(fmt.Appendf(nil, "%s %d ", key, n), make([]byte, 2<<10)...)
	}
	for i := range jobs {
		for _, key := range []string{"a", "b"} {
			m := nats.NewMsg("penstock.jobs.api." + key)
			m.Data = body(key, i)
			m.Header.Set("Content-Type", fmt.Sprint("number/", i))
			if _, err := js.PublishMsgAsync(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	var ran seen
	b.drain(Options{Memory: LeastMemory}, map[string]Handler{"api": ran.handle})
	b.empty("api")
	next := map[queue.Key]int{}
	for _, run := range ran.all() {
		n := next[run.Key]
		if !bytes.Equal(run.Body, body(string(run.Key), n)) ||
			job.HeaderValue(run.Header, "Content-Type") != fmt.Sprint("number/", n) {
			t.Fatalf("number %d of %s runs with %.20q and %v", n, run.Key, run.Body, run.Header)
		}
		next[run.Key]++
	}
	if next["a"] != jobs || next["b"] != jobs {
		t.Errorf("ran %v", next)
	}
}

func TestDeadLettersAndRepeatsOfDeepJobs(t *testing.T) {
	b := newBench(t, with(leaky("api", "1/h"), func(p *policy.Policy) { p.Partitions = 1 }))
	var ran seen
	b.drain(Options{Memory: LeastMemory}, map[string]Handler{"api": ran.handle})
	producer := b.broker.NewProducer(jet.ProducerOptions{})
	publish := func(id string, header map[string][]string) (jet.Receipt, error) {
		if header == nil {
			header = map[string][]string{}
		}
		header[job.HeaderSum] = []string{"sum of " + id}
		return producer.Publish(t.Context(), jet.Submission{Policy: "api", Key: "k",
			IdempotencyKey: id, Header: header, Body: make([]byte, 3<<10)})
	}
	for i := range 1000 {
		if _, err := publish(fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	last, err := publish("last", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := publish("late", map[string][]string{job.HeaderDeadline: {"1s"}}); err != nil {
		t.Fatal(err)
	}
	b.until("the job is cancelled", func() bool {
		a, err := b.broker.AskValve(t.Context(), "api", 0,
			job.Question{Op: job.OpCancel, Jobs: []uint64{last.Seq}})
		return err == nil && a.Removed == 1
	})
	_, err = publish("last", nil)
	var ended *jet.EndedError
	if !errors.As(err, &ended) || ended.How != queue.EndCancelled || ended.Sum != "sum of last" {
		t.Errorf("a repeat of what was cancelled is %v", err)
	}
	js, err := b.nc.JetStream(nats.MaxWait(deadline))
	if err != nil {
		t.Fatal(err)
	}
	var letter *nats.RawStreamMsg
	b.until("the job expires", func() bool {
		m, err := js.GetLastMsg("PENSTOCK_DEAD_api", "penstock.dead.api.k")
		letter = m
		return err == nil && m.Header.Get("Penstock-Dead-Reason") == string(queue.ReasonDeadline)
	})
	if key := letter.Header.Get(job.HeaderIdempotencyKey); len(letter.Data) != 3<<10 ||
		key != "late" {
		t.Errorf("the letter of what expired has %d bytes, and the key %q", len(letter.Data), key)
	}
	if n := len(ran.all()); n > 1 {
		t.Errorf("%d jobs ran in an hour that has just begun", n)
	}
}
