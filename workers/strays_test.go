package workers

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/internal/pace/pacetest"
)

func TestWildcardPublishesDelayNoOthers(t *testing.T) {
	t.Parallel()
	p := leaky("api", "50/s")
	p.Partitions = 4
	b := newBench(t, p)
	key := "a"
	for i := 0; job.Partition("penstock.jobs.api."+key, 4) != 0; i++ {
		key = fmt.Sprint("a", i)
	}
	const jobs = 400
	b.publish("api", key, 0, jobs)
	var ran seen
	var log waittest.Log
	b.drain(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		map[string]Handler{"api": ran.handle})
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
		page, err := b.broker.Letters("api").List(t.Context(), after, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page {
			if after = l.ID; l.Reason == string(queue.ReasonMalformed) {
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
	if why := pacetest.Exceeds(starts, 50, 1); why != "" {
		t.Error(why)
	}
}
