package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-mq/penstock/internal/queue/backup"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

// Each stream has the configured replicas, all jobs run in order, and a failed one is at its second
// attempt.
func TestABackupOfOneServerIsRestoredOntoThree(t *testing.T) {
	const jobs = 100
	p := leaky("api", "1000/s")
	p.Partitions, p.Retry.Backoff = 1, policy.Duration(time.Hour)
	one := newBench(t, p)
	failed := make(chan struct{})
	stop := one.drain(Options{}, map[string]Handler{"api": func(context.Context, Job) error {
		close(failed)
		return errors.New("not yet")
	}})
	one.publish("api", "failed", 0, 1)
	one.receive("the first job failed", failed)
	one.until("its attempt is stored", func() bool { return one.attempts() == 1 })
	stop()
	for _, key := range []string{"a", "b"} {
		one.publish("api", key, 0, jobs)
	}

	file := one.backup()
	first := newRestored(t, file)
	second := newRestored(t, first.backup())
	var ran seen
	second.drain(Options{Replicas: 3, Lease: 4 * time.Second},
		map[string]Handler{"api": ran.handle})
	second.until("all jobs have run", func() bool { return len(ran.all()) >= 2*jobs })
	for _, key := range []queue.Key{"a", "b"} {
		next := 0
		for _, j := range ran.all() {
			if j.Key == key && string(j.Body) != fmt.Sprint(next) {
				t.Errorf("bucket %s: job %s ran in place of %d", key, j.Body, next)
			}
			if j.Key == key {
				next++
			}
		}
		if next != jobs {
			t.Errorf("bucket %s: %d of %d jobs", key, next, jobs)
		}
	}
	if n := len(ran.bodies("failed")); n != 0 || second.attempts() != 1 {
		t.Errorf("what waits for its second attempt ran %d times, after %d", n, second.attempts())
	}
}

func (b *bench) attempts() int {
	r, err := b.broker.Tables().Attempts.Read(b.t.Context(), "api.0.1")
	var stored record.Attempt
	if err == nil {
		err = record.Decode(r.Value, &stored)
	}
	if err != nil {
		return 0
	}
	return stored.Attempts
}

func (b *bench) backup() []byte {
	b.t.Helper()
	var file bytes.Buffer
	b.answered(func() error {
		file.Reset()
		_, err := backup.Write(b.t.Context(), b.broker, &file)
		return err
	})
	return file.Bytes()
}

func newRestored(t *testing.T, file []byte) *bench {
	t.Helper()
	_, urls := threeNodes(t)
	b := &bench{t: t, url: urls, nc: connectAs(t, "test", urls)}
	var err error
	if b.broker, err = jet.NewBroker(b.nc, jet.Options{Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	contents, err := backup.Restore(t.Context(), b.broker, bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(b.nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range contents.Streams {
		b.until(s.Name+" has three copies", func() bool {
			stream, err := js.Stream(t.Context(), s.Name)
			if err != nil {
				return false
			}
			info := stream.CachedInfo()
			current := 0
			if info.Cluster != nil {
				for _, replica := range info.Cluster.Replicas {
					if replica.Current {
						current++
					}
				}
			}
			return info.Config.Replicas == 3 && current == 2 && info.State.Msgs == s.Messages
		})
	}
	b.answered(func() error { return b.broker.Setup(t.Context()) })
	return b
}
