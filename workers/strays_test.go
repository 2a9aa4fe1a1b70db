package workers

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/queue"
)

// lockedBuffer is a log that many write to.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// TestWildcardPublishesHoldNobodyUp: who publishes with wildcards for tokens, again and again, gets dead letters and does
// not make the owner of partition 0 begin anew.
func TestWildcardPublishesHoldNobodyUp(t *testing.T) {
	p := leaky("api", "50/s")
	p.Partitions = 4
	b := newBench(t, p)
	key := "a"
	for i := 0; queue.Partition("penstock.jobs.api."+key, 4) != 0; i++ {
		key = fmt.Sprint("a", i)
	}
	const jobs = 400 // 8 s: more than one look
	b.publish("api", key, 0, jobs)
	var ran seen
	var log lockedBuffer
	b.drain(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, map[string]Handler{"api": ran.handle})
	strays := 0
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for end := time.After(deadline); len(ran.all()) < jobs; {
		select {
		case <-ticker.C:
			b.publish("api", fmt.Sprintf("a.*.%d", strays), 0, 1)
			strays++
		case <-end:
			t.Fatalf("%d of %d jobs ran", len(ran.all()), jobs)
		}
	}
	b.empty("api")
	letters := 0
	for after := uint64(0); ; {
		page, err := b.broker.DeadLetters(t.Context(), "api", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page {
			if after = l.ID; l.Reason == string(ReasonMalformed) {
				letters++
			}
		}
		if len(page) == 0 {
			break
		}
	}
	if letters != strays {
		t.Errorf("%d letters of %d strays", letters, strays)
	}
	if strings.Contains(log.String(), "opens a backlog anew") {
		t.Errorf("log:\n%s", log.String())
	}
	var starts []time.Duration
	for _, job := range ran.all() {
		starts = append(starts, job.Started.Sub(ran.all()[0].Started))
	}
	if why := exceeds(starts, 50, 1); why != "" {
		t.Error(why)
	}
}
