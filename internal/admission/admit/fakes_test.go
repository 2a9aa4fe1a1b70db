package admit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// fakeQueue stores jobs in a map, bounded per key and with message ids as in a stream.
type fakeQueue struct {
	capacity int
	fail     error

	mu        sync.Mutex
	publishes int
	jobs      map[queue.Key]int
	ids       map[string]uint64
	last      jet.Submission
}

func (f *fakeQueue) Send(_ context.Context, s jet.Submission) (
	wait func(context.Context) (jet.Receipt, error)) {

	r, err := f.publish(s)
	return func(context.Context) (jet.Receipt, error) { return r, err }
}

func (f *fakeQueue) publish(s jet.Submission) (jet.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publishes++
	f.last = s
	if f.fail != nil {
		return jet.Receipt{}, f.fail
	}
	id := string(s.Key) + "/" + s.IdempotencyKey
	if seq, found := f.ids[id]; found && s.IdempotencyKey != "" {
		return jet.Receipt{Seq: seq, Duplicate: true}, nil
	}
	if f.jobs[s.Key] >= f.capacity {
		return jet.Receipt{}, fmt.Errorf("publish: %w", jet.ErrFull)
	}
	if f.jobs == nil {
		f.jobs, f.ids = map[queue.Key]int{}, map[string]uint64{}
	}
	f.jobs[s.Key]++
	seq := uint64(0)
	for _, n := range f.jobs {
		seq += uint64(n)
	}
	if s.IdempotencyKey != "" {
		f.ids[id] = seq
	}
	return jet.Receipt{Seq: seq}, nil
}

func (f *fakeQueue) Repeated(_ context.Context, _ jet.Submission,
	first jet.Receipt) (jet.Receipt, error) {
	first.Duplicate = true
	return first, nil
}

func (f *fakeQueue) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.publishes
}

type fakeValves struct {
	answer func(partition int, q job.Question) (job.Answer, error)

	mu    sync.Mutex
	asked []job.Question
}

func (f *fakeValves) AskValve(_ context.Context, _ string, partition int, q job.Question) (
	job.Answer, error) {

	f.mu.Lock()
	f.asked = append(f.asked, q)
	f.mu.Unlock()
	if f.answer == nil {
		return job.Answer{}, jet.ErrUnavailable
	}
	return f.answer(partition, q)
}

func (f *fakeValves) questions(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, q := range f.asked {
		if q.Op == op {
			n++
		}
	}
	return n
}

func startsIn(ms int64) func(int, job.Question) (job.Answer, error) {
	return func(_ int, q job.Question) (job.Answer, error) {
		a := job.Answer{DelayMS: ms}
		for _, seq := range q.Jobs {
			a.Starts = append(a.Starts, job.ExpectedStart{Seq: seq, Known: true, DelayMS: ms})
		}
		return a, nil
	}
}

type tokens struct {
	fail error

	mu     sync.Mutex
	rule   algorithms.TokenBucket
	quota  admission.Quota
	states map[admission.Caller]algorithms.TokenBucketState
	taken  int64
}

func (l *tokens) Take(_ context.Context, from admission.Caller, n int64) (
	admission.Checked, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return admission.Checked{}, l.fail
	}
	if err := algorithms.CheckCost(n, l.rule.Most()); err != nil {
		return admission.Checked{}, err
	}
	next, d := l.rule.Take(l.states[from], time.Now(), n)
	l.states[from] = next
	l.taken += d.Granted
	return admission.Checked{Decision: d, Quota: l.quota}, nil
}

func (l *tokens) Peek(_ context.Context, from admission.Caller, n int64) (
	admission.Checked, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return admission.Checked{Decision: l.rule.Peek(l.states[from], time.Now(), n), Quota: l.quota},
		l.fail
}

func (l *tokens) Refund(_ context.Context, from admission.Caller, n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states[from] = l.rule.Refund(l.states[from], time.Now(), n)
	l.taken -= n
	return l.fail
}

func (l *tokens) net() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

func newTokens(p policy.Policy, previous admission.Limiter) (admission.Limit, error) {
	rule := algorithms.TokenBucket{Capacity: p.Capacity, Refill: p.Refill}
	if p.Meter() {
		rule.Refill = p.Outflow
	}
	quota := admission.Quota{Policy: p.Name, Units: p.Capacity, Window: time.Minute}
	if former, ok := previous.(*tokens); ok {
		return admission.Limit{Limiter: former, Quota: quota, Commit: func() {
			former.mu.Lock()
			defer former.mu.Unlock()
			former.rule, former.quota = rule, quota
		}}, nil
	}
	return admission.Limit{Limiter: &tokens{rule: rule, quota: quota,
		states: map[admission.Caller]algorithms.TokenBucketState{}}, Quota: quota}, nil
}

func rate(s string) algorithms.Rate {
	r, err := algorithms.ParseRate(s)
	if err != nil {
		panic(err)
	}
	return r
}

var (
	stripe = policy.Policy{Name: "stripe",
		Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: rate("10/s"), Capacity: 3}}
	meter = policy.Policy{Name: "meter",
		Rule:  policy.Rule{Algorithm: policy.LeakingBucket, Outflow: rate("10/s"), Capacity: 3},
		Queue: &policy.Queue{Off: true}}
	door = policy.Policy{Name: "door",
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 5, Refill: rate("1/m")}}
	search = policy.Policy{Name: "search",
		Rule:  policy.Rule{Algorithm: policy.TokenBucket, Capacity: 5, Refill: rate("1/m")},
		Queue: &policy.Queue{Capacity: 3}}
)

func setOf(revision uint64, policies ...policy.Policy) inforce.Entries {
	set := inforce.Entries{}
	for _, p := range policies {
		set[p.Name] = &inforce.Entry{Policy: p, Revision: revision}
	}
	return set
}

func newTestService(t *testing.T, q *fakeQueue, v *fakeValves, policies ...policy.Policy) *Service {
	t.Helper()
	names, err := jet.NewNames("")
	if err != nil {
		t.Fatal(err)
	}
	s := New(names, q, v, newTokens, Options{})
	if err := s.SetPolicies(setOf(1, policies...)); err != nil {
		t.Fatal(err)
	}
	return s
}

func submit(t *testing.T, s *Service, policy string, header ...string) admission.Outcome {
	t.Helper()
	o, err := s.Submit(t.Context(), request(policy, header...))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func request(policy string, header ...string) SubmitRequest {
	r := SubmitRequest{Policy: policy, Key: "acme", Header: map[string][]string{}}
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = []string{header[i+1]}
	}
	return r
}
