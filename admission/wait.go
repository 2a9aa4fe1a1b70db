package admission

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/queue/job"
)

const (
	// MaxWait is the longest [SubmitRequest.Wait].
	MaxWait = 5 * time.Minute
	// maxWaiters is how many submissions of one process wait for the end of their jobs at a time.
	maxWaiters = 1000
)

// Why a submission that was to wait for the end of its job did not hear of it.
const (
	NotWaitedTime     = "time"     // the job has not ended within the time
	NotWaitedRepeat   = "repeat"   // another submission's job, whose outcome goes to that one
	NotWaitedBusy     = "busy"     // as many wait in this process, or of this client, as may
	NotWaitedStopping = "stopping" // the process is about to end
)

// Outcomes tell how jobs end; [*queue.Broker] does.
type Outcomes interface {
	Await() (*queue.Waiting, error)
}

// waiters are the submissions that wait.
type waiters struct {
	outcomes Outcomes // nil: nobody can
	places   *Budget
	ending   context.Context // done when nobody may wait any more
	end      context.CancelFunc
}

func newWaiters(o Outcomes) waiters {
	w := waiters{outcomes: o, places: NewBudget(maxWaiters)}
	w.ending, w.end = context.WithCancel(context.Background())
	return w
}

// EndWaits has all submissions that wait for the end of their jobs answered now, and those to come
// without waiting.
func (s *Service) EndWaits() { s.waiters.end() }

// WaitHeader is for how long a submission waits for the end of its job: see [SubmitRequest.Wait].
const WaitHeader = "Penstock-Wait"

// ParseWait reads how long a submission is to wait. The error is a [*RequestError] of the field.
func ParseWait(field, value string) (time.Duration, error) {
	wait, err := algorithms.ParseDuration(value)
	if err != nil || wait <= 0 || wait > MaxWait {
		return 0, &RequestError{field,
			fmt.Sprintf("%.32q: want a duration up to %s, such as 30s", value, MaxWait)}
	}
	return wait, nil
}

// waits reads for how long a request is to wait; its header says so where its transport did not.
func (r SubmitRequest) waits() (wait time.Duration, err error) {
	wait = r.Wait
	for name, values := range r.Header {
		if !strings.EqualFold(name, WaitHeader) {
			continue
		}
		if wait > 0 || len(values) != 1 {
			return 0, &RequestError{WaitHeader, "must be given once"}
		}
		if wait, err = ParseWait(WaitHeader, values[0]); err != nil {
			return 0, err
		}
	}
	return wait, nil
}

// await is Submit for a request that waits. The job is told apart by a token in its header, to
// which the drainer says how it ended. That is said once, and to who listens: so listening begins
// before the job is stored.
func (s *Service) await(ctx context.Context, r SubmitRequest, wait time.Duration) (
	Outcome, error) {

	if s.waiters.outcomes == nil {
		return Outcome{}, &RequestError{WaitHeader, "nobody can wait here"}
	}
	if s.waiters.places.Reserve(r.From, 1) != nil {
		return notWaited(NotWaitedBusy)(s.send(ctx, r, s.foretold)())
	}
	defer s.waiters.places.Release(r.From, 1)
	waiting, err := s.waiters.outcomes.Await()
	if err != nil {
		return Outcome{}, unavailable("wait for the end of a job", err)
	}
	defer waiting.Leave()
	until, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.waiters.ending, cancel)()
	r.waiter = waiting.Token
	o, err := s.send(ctx, r, s.stored)()
	if err != nil || o.Verdict == Rejected {
		return o, err
	}
	if o.Duplicate {
		return notWaited(NotWaitedRepeat)(o, nil)
	}
	told, err := waiting.Outcome(until)
	switch {
	case err == nil:
		o.Told = &told
		return o, nil
	case s.waiters.ending.Err() != nil:
		return notWaited(NotWaitedStopping)(o, nil)
	}
	return notWaited(NotWaitedTime)(o, nil)
}

// notWaited adds why nobody waited for a job to what became of its submission.
func notWaited(why string) func(Outcome, error) (Outcome, error) {
	return func(o Outcome, err error) (Outcome, error) {
		if err == nil && o.Verdict != Rejected {
			o.NotWaited = why
		}
		return o, err
	}
}

// awaited is the header of a stored job that somebody waits for.
func (j *jobHeader) awaited(token string) {
	if token != "" {
		if j.stored == nil {
			j.stored = make(map[string][]string, 1)
		}
		j.stored[job.HeaderWaiter] = []string{token}
	}
}
