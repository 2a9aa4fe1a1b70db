package admit

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

const maxWaiters = 1000

// Outcomes hears how jobs end, as [*jet.Broker] does.
type Outcomes interface {
	Await() (*jet.Waiting, error)
}

type waiters struct {
	outcomes Outcomes // nil: waiting is not possible
	places   *Budget
	ending   context.Context // done when waiting ends
	end      context.CancelFunc
}

func newWaiters(o Outcomes) waiters {
	w := waiters{outcomes: o, places: NewBudget(maxWaiters)}
	w.ending, w.end = context.WithCancel(context.Background())
	return w
}

// EndWaits ends later waits too.
func (s *Service) EndWaits() { s.waiters.end() }

// WaitHeader asks to wait for a job's end, or for a permit.
const WaitHeader = "Penstock-Wait"

// ParseWait reads a wait of at most [admission.MaxWait]; an error names the field.
func ParseWait(field, value string) (time.Duration, error) {
	wait, err := algorithms.ParseDuration(value)
	if err != nil || wait <= 0 || wait > admission.MaxWait {
		return 0, invalid(field,
			fmt.Sprintf("%.32q: want a duration up to %s, such as 30s", value, admission.MaxWait))
	}
	return wait, nil
}

func (r SubmitRequest) waits() (wait time.Duration, err error) {
	wait = r.Wait
	for name, values := range r.Header {
		if !strings.EqualFold(name, WaitHeader) {
			continue
		}
		if wait > 0 || len(values) != 1 {
			return 0, invalid(WaitHeader, "must be given once")
		}
		if wait, err = ParseWait(WaitHeader, values[0]); err != nil {
			return 0, err
		}
	}
	return wait, nil
}

func (s *Service) await(ctx context.Context, r SubmitRequest, wait time.Duration) (
	admission.Outcome, error) {

	if s.waiters.outcomes == nil {
		return admission.Outcome{}, invalid(WaitHeader, "is not supported here")
	}
	if s.waiters.places.Reserve(r.From, 1) != nil {
		o, err := s.finish(ctx, s.send(ctx, &r), true)
		if err == nil && o.Verdict != admission.Rejected {
			o.NoResult = admission.NoResultBusy
		}
		return o, err
	}
	defer s.waiters.places.Release(r.From, 1)
	waiting, err := s.waiters.outcomes.Await()
	if err != nil {
		return admission.Outcome{}, unavailable("wait for the end of a job", err)
	}
	defer waiting.Leave()
	until, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.waiters.ending, cancel)()
	r.waiter = waiting.Token
	x := s.send(ctx, &r)
	o, err := s.finish(ctx, x, false)
	if err != nil || o.Verdict == admission.Rejected {
		return o, err
	}
	if o.Duplicate {
		o.NoResult = admission.NoResultRepeat
		return o, nil
	}
	told, err := waiting.Outcome(until)
	switch {
	case err == nil:
		o.Result = &told
	case s.waiters.ending.Err() != nil:
		o.NoResult = admission.NoResultStopping
	default:
		o = s.foretold(ctx, x, o)
		o.NoResult = admission.NoResultTime
	}
	return o, nil
}

func (j *jobHeader) awaited(token string) {
	if token != "" {
		if j.stored = maps.Clone(j.stored); j.stored == nil {
			j.stored = make(map[string][]string, 1)
		}
		j.stored[job.HeaderWaiter] = []string{token}
	}
}
