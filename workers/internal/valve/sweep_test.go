package valve

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func TestAFinishedJobThatComesLateDoesNotRunAgain(t *testing.T) {
	b := newValveBench(t, leaky("api", "1000/s"))
	b.arrive("a")
	b.end(b.start()[0], record.Outcome{Kind: record.OutcomeDone})
	b.at(10 * ms)
	b.p.Reopen(2)
	b.p.last = 1
	b.at(500 * ms)
	b.p.Confirmed(1, b.now)
	b.at(2 * second)
	b.deliver(1, "a")
	if runs := b.start(); len(runs) > 0 || len(b.out.Acks) != 2 {
		t.Errorf("started %s, acknowledged %v", b.seqs(runs), b.out.Acks)
	}
}

func TestASweepKeepsAttemptsOfPendingJobs(t *testing.T) {
	p := leaky("api", "1000/s")
	minute := policy.Duration(time.Minute)
	p.Retry = policy.Retry{MaxAttempts: 3, Backoff: minute, MaxBackoff: minute}
	b := newValveBench(t, p)
	j := b.arrive("a")
	b.end(b.start()[0], record.Outcome{Kind: record.OutcomeFailed, Error: "500"})
	b.v.stock.saved(j, b.now)
	b.at(10 * ms)
	b.p.Reopen(2)
	b.at(second)
	b.deliver(1, "a")
	b.p.last = 1
	b.p.Swept(b.now)
	if runs := b.start(); len(runs) > 0 || len(b.out.Forgets) > 0 || j.Attempts != 1 {
		t.Errorf("started %s, forgot %v, %d attempts", b.seqs(runs), b.out.Forgets, j.Attempts)
	}
}
