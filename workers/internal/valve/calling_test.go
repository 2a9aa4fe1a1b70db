package valve

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

type calling struct {
	*offering
	t     *testing.T
	heard []string
	n     int
}

func newCalling(t *testing.T, p policy.Policy) *calling {
	c := &calling{offering: newOffering(p), t: t}
	c.Crew.Local = true
	c.out.Reset()
	return c
}

func (c *calling) ask(id string, now pace.Instant) { c.askOf(id, job.Claim{}, now) }

// askOf claims a permit with a wait of 10 s for the next number, of those given otherwise.
func (c *calling) askOf(id string, q job.Claim, now pace.Instant) {
	c.n++
	q.Op, q.Want, q.Key, q.ID, q.N = job.OpClaim, job.WantPermit, "a", id, c.n
	q.Partitions = cmp.Or(q.Partitions, c.Policy.Partitions)
	q.WaitMS = cmp.Or(q.WaitMS, 10_000)
	c.part.Hear(q, c.hears(id), now)
}

func (c *calling) hears(id string) func(job.Turn) {
	return func(t job.Turn) {
		switch {
		case t.Error != "":
			c.heard = append(c.heard, id+" error")
		case t.StartMS != nil:
			c.heard = append(c.heard, fmt.Sprintf("%s %s %d", id, t.State, *t.StartMS))
		case t.State == job.TurnRefused && t.Reason == job.RefusedDown:
			c.heard = append(c.heard, fmt.Sprintf("%s %s %s, again in %d", id, t.State,
				t.Reason, t.RetryMS))
		default:
			c.heard = append(c.heard, strings.TrimSpace(id+" "+t.State+" "+t.Reason))
		}
	}
}

func (c *calling) settle(id, status string, now pace.Instant) string {
	return c.tell(id, job.OpSettle, job.Settlement{Status: status}, now)
}

func (c *calling) progress(id string, now pace.Instant) string {
	return c.tell(id, job.OpProgress, job.Settlement{}, now)
}

func (c *calling) tell(id, op string, s job.Settlement, now pace.Instant) string {
	c.n++
	said := ""
	c.part.Hear(job.Claim{Op: op, Key: "a", ID: id, N: c.n, Settlement: s},
		func(t job.Turn) { said = t.State }, now)
	return said
}

func (c *calling) at(now pace.Instant, want string) {
	c.t.Helper()
	c.begin(now)
	if got := strings.Join(c.heard, ", "); got != want {
		c.t.Fatalf("at %v: heard %q, want %q", time.Duration(now), got, want)
	}
	c.heard = nil
}

func (c *calling) begin(now pace.Instant) {
	for more := true; more; {
		c.Advance(now, pace.Never)
		starts := c.out.Starts
		c.out.Starts, more = nil, len(starts) > 0
		for _, r := range starts {
			begin, o := func() { c.heard = append(c.heard, fmt.Sprint("job ", r.Seq)) },
				record.Outcome{Kind: record.OutcomeDone}
			if r.Call != nil {
				begin = r.Call.Tell
			}
			_, passed := r.Decide(func() (pace.Instant, pace.Instant) { return pace.Never, now },
				begin)
			if r.Call != nil {
				o = r.Call.Outcome(passed)
			}
			c.Finished(r.Number, o, now)
		}
	}
}

// begins notes a checkpoint, which starts under limits need.
func (c *calling) begins(now pace.Instant) {
	begin(c.part)
	c.part.Checkpoints.Store()
	c.NotedFirst(c.Valve, now)
}
