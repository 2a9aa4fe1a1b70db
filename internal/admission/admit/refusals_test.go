package admit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

func TestFloodAtAFullBucketCostsNoPublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, v := &fakeQueue{capacity: 3}, &fakeValves{answer: startsIn(70)}
		s := newTestService(t, q, v, stripe)
		for range 3 {
			submit(t, s, "stripe")
		}
		places := 1 + int(time.Duration(stripe.Capacity)*stripe.Outflow.Interval()/
			stripe.Outflow.Interval())
		for i := range 1000 {
			o := submit(t, s, "stripe")
			want := 70*time.Millisecond + time.Duration(i%places)*stripe.Outflow.Interval()
			if o.Verdict != admission.Rejected || o.RetryAfter != want || o.Job != "" ||
				o.Remaining != 0 {
				t.Fatalf("refusal %d: %+v, want %v", i+1, o, want)
			}
		}
		if n := q.count(); n != 4 {
			t.Errorf("%d publishes for 3 accepted jobs and a flood, want 4", n)
		}
		if n := v.questions(job.OpRoom); n != 1 {
			t.Errorf("the valve was asked for room %d times, want once", n)
		}
		other := request("stripe")
		other.Key = "other"
		if o, err := s.Submit(t.Context(), other); err != nil || o.Verdict == admission.Rejected {
			t.Errorf("another bucket: %+v, %v", o, err)
		}
		before := q.count()
		time.Sleep(70 * time.Millisecond)
		submit(t, s, "stripe")
		if q.count() != before+1 {
			t.Error("a refusal was remembered beyond its retry-after")
		}
	})
}

// TestAJobThatCannotMeetItsDeadlineIsRefusedAtTheDoor expects the start in the refusal, and no
// publish. A job whose start is unknown, or that may be a repeat, is not refused.
func TestAJobThatCannotMeetItsDeadlineIsRefusedAtTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, asking := new(int64(5000)), job.Question{}
		v := &fakeValves{answer: func(_ int, q job.Question) (job.Answer, error) {
			if q.Op == job.OpRoom {
				asking = q
				return job.Answer{StartMS: start}, nil
			}
			return startsIn(5000)(0, q)
		}}
		q := &fakeQueue{capacity: 100}
		counted := stripe
		counted.Limits = policy.Limits{{Name: "tokens", Cost: "tokens", Rule: policy.Rule{
			Algorithm: policy.SlidingLog, Limit: 100, Window: policy.Duration(time.Minute)}}}
		s := newTestService(t, q, v, counted)
		o := submit(t, s, "stripe", "Penstock-Deadline", "2s", "Penstock-Priority", "3",
			"Penstock-Cost", "2", "Penstock-Cost-Tokens", "7")
		if want := time.Now().Add(5 * time.Second); o.Verdict != admission.Rejected ||
			!o.Unreachable.Equal(want) || o.RetryAfter != 3*time.Second || q.count() != 0 {
			t.Errorf("refused with %+v after %d publishes, want %v", o, q.count(), want)
		}
		if asking.Priority != 3 || asking.Cost != 2 || asking.Costs["tokens"] != 7 {
			t.Errorf("the valve was asked about %+v", asking)
		}
		asking = job.Question{}
		accepted := func(why string, header ...string) {
			t.Helper()
			if o := submit(t, s, "stripe", header...); o.Verdict == admission.Rejected {
				t.Errorf("%s: %+v", why, o)
			}
		}
		accepted("its deadline is later", "Penstock-Deadline", "6s")
		accepted("it may be a repeat", "Penstock-Deadline", "2s", "Idempotency-Key", "a")
		asked := v.questions(job.OpRoom)
		accepted("it has no deadline")
		if v.questions(job.OpRoom) != asked {
			t.Error("the valve is asked about a job without a deadline")
		}
		start = nil
		accepted("the valve does not know", "Penstock-Deadline", "2s")
		v.answer = nil
		accepted("the valve does not answer", "Penstock-Deadline", "2s")
		asked = v.questions(job.OpRoom)
		accepted("nor did it a moment ago", "Penstock-Deadline", "2s")
		if v.questions(job.OpRoom) != asked {
			t.Error("a silent valve is asked again at once")
		}
	})
}

func TestRefusalIsRememberedForOneIntervalAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &fakeQueue{capacity: 0}
		slow := stripe
		slow.Name, slow.Outflow = "slow", rate("10/d")
		total, both := stripe, stripe
		total.Name, total.Outflow, total.OutflowTotal = "total", algorithms.Rate{}, rate("5/s")
		both.Name, both.OutflowTotal = "both", rate("1000/s")
		s := newTestService(t, q, &fakeValves{}, stripe, slow, total, both)
		for _, c := range []struct {
			policy      string
			hold, retry time.Duration
		}{
			{"stripe", 100 * time.Millisecond, 100 * time.Millisecond},
			{"slow", time.Second, 2*time.Hour + 24*time.Minute},
			{"total", 200 * time.Millisecond, 200 * time.Millisecond},
			{"both", 100 * time.Millisecond, 100 * time.Millisecond},
		} {
			if o := submit(t, s, c.policy); o.Verdict != admission.Rejected ||
				o.RetryAfter != c.retry {
				t.Errorf("%s: %+v, want retry after %s", c.policy, o, c.retry)
			}
			before := q.count()
			time.Sleep(c.hold - time.Nanosecond)
			submit(t, s, c.policy)
			if q.count() != before {
				t.Errorf("%s: published before the interval had passed", c.policy)
			}
			time.Sleep(time.Nanosecond)
			submit(t, s, c.policy)
			if q.count() != before+1 {
				t.Errorf("%s: not published after the interval had passed", c.policy)
			}
		}
	})
}

func TestRefusalIsForgottenWhenThePolicyChanges(t *testing.T) {
	q := &fakeQueue{capacity: 0}
	s := newTestService(t, q, &fakeValves{}, stripe)
	submit(t, s, "stripe")
	q.capacity = 5
	larger := stripe
	larger.Capacity = 5
	if err := s.SetPolicies(setOf(2, larger)); err != nil {
		t.Fatal(err)
	}
	if o := submit(t, s, "stripe"); o.Verdict != admission.Queued {
		t.Errorf("got %+v", o)
	}
}

func TestRepeatGetsTheFirstAnswerFromAFullBucket(t *testing.T) {
	q := &fakeQueue{capacity: 3}
	s := newTestService(t, q, &fakeValves{}, stripe)
	first := submit(t, s, "stripe", "Idempotency-Key", "order-1")
	submit(t, s, "stripe")
	submit(t, s, "stripe")
	if o := submit(t, s, "stripe"); o.Verdict != admission.Rejected {
		t.Fatalf("the bucket is not full: %+v", o)
	}
	if o := submit(t, s, "stripe", "idempotency-key", "order-1"); o.Job != first.Job ||
		o.Verdict != admission.Queued {
		t.Errorf("the repeat got %+v, want job %s", o, first.Job)
	}
	if o := submit(t, s, "stripe", "Idempotency-Key", "order-2"); o.Verdict != admission.Rejected {
		t.Errorf("a new job got %+v", o)
	}
}
