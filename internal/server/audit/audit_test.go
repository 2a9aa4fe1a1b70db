package audit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/server/audit"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/workerstest"
)

func TestAnAuditorSeesStarts(t *testing.T) {
	kit := workerstest.New(t, workerstest.Policy("stripe", "50/s"))
	kit.Handle("stripe", nil)
	auditor := kit.Audit()
	kit.Publish("stripe", "tenant", nil, 60)
	kit.Wait("stripe", 60)
	waittest.Until(t, "it has heard of them", func() bool {
		seen, known := auditor.Bucket("stripe", "tenant")
		within := func(w audit.Window) bool { return w.Units > 1 && w.Share() <= 1 }
		// The fullest window of a second or more is shown apart only if it is longer than one.
		return known && !seen.Incomplete && seen.Broken == 0 && len(seen.Worst) > 0 &&
			within(seen.Worst[0]) && within(seen.Worst[len(seen.Worst)-1])
	})
	if f := auditor.Figures(); len(f) != 1 || f[0].Worst <= 0 || f[0].Worst > 1 {
		t.Errorf("figures %+v", f)
	}
}

func TestABrokenLimitIsReported(t *testing.T) {
	kit := workerstest.New(t, workerstest.Policy("stripe", "50/s"))
	auditor := audit.New(kit.Broker(), audit.Options{})
	ended := make(chan error, 1)
	go func() { ended <- auditor.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-auditor.Ready()
	told := make(chan queue.Event, 100)
	stop, err := kit.Broker().Events().Listen("stripe", ">", func(_ string, e queue.Event) {
		if e.Type == queue.EventLimitBroken {
			told <- e
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	at := time.Now()
	for i := range 60 {
		kit.Broker().Events().Publish("stripe", queue.Event{Type: queue.EventStarted, Key: "k",
			Job: fmt.Sprint("stripe:", i), At: at.Add(time.Duration(i) * 10 * time.Millisecond)})
	}
	select {
	case e := <-told:
		if e.Key != "k" || !strings.HasPrefix(e.Reason, "outflow: ") ||
			!strings.Contains(e.Reason, "stripe:") {
			t.Errorf("told %+v", e)
		}
	case <-time.After(waittest.Patience()):
		t.Fatal("nobody was told")
	}
	if b := auditor.Breaches(); len(b) == 0 || b[0].Policy != "stripe" {
		t.Errorf("breaches %v", b)
	}
}

func TestAnAuditorSeesOpenRuns(t *testing.T) {
	p := workerstest.Policy("stripe", "100/s")
	p.Limits = policy.Limits{{Name: "target", CountFrom: policy.CountFromAnswer,
		Rule: policy.Rule{Algorithm: policy.SlidingLog, Limit: 5,
			Window: policy.Duration(100 * time.Millisecond)}}}
	kit := workerstest.New(t, p)
	kit.Handle("stripe", func(_ context.Context, j workers.Job) error {
		if j.ID == "stripe:3" && j.Attempt == 1 {
			return errors.New("the connection broke")
		}
		j.Answered()
		return nil
	})
	auditor := kit.Audit()
	kit.Publish("stripe", "tenant", nil, 20)
	kit.Wait("stripe", 20)
	waittest.Until(t, "it has heard of full use", func() bool {
		seen, _ := auditor.Bucket("stripe", "tenant")
		return slices.ContainsFunc(seen.Worst, func(w audit.Window) bool {
			return w.Limit == "target" && w.Units == 5
		})
	})
}
