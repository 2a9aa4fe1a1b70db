package permits

import (
	"crypto/rand"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/queue/job"
)

// Status says how a call ended.
type Status string

const (
	Done        Status = job.CallDone        // the target answered
	Failed      Status = job.CallFailed      // it failed, perhaps because of the call
	Unavailable Status = job.CallUnavailable // it is down: several in a row open a breaker
	Unreached   Status = job.CallUnreached   // it is down, and the call used no units
	Throttled   Status = job.CallThrottled   // it asked for a pause of the bucket
)

// Result says how a call ended, for [Permit.Settle].
type Result struct {
	Status Status
	// RetryAfter pauses the bucket, for any status; 0: no pause, or the policy's backoff after
	// Throttled.
	RetryAfter time.Duration
	Used       map[string]int64 // actual costs, by name; omitted ones stay as estimated
	Err        error
}

// Permit allows one call, which must begin by StartBy or be returned.
type Permit struct {
	StartBy time.Time
	ID      string
	// Lease is the permit's life without renewal; 0: only an end that pauses the bucket must be
	// reported.
	Lease time.Duration

	tell  func(job.Call) error
	once  sync.Once
	ended chan job.Call // the settlement, for hold or keep
}

// Lent is a permit of another process ([Client.Lend]), which gets the reports of tell.
func Lent(id string, startBy time.Time, lease time.Duration, tell func(job.Call) error) *Permit {
	p := &Permit{ID: id, StartBy: startBy, Lease: lease, tell: tell, ended: make(chan job.Call, 1)}
	if lease > 0 {
		go p.keep()
	}
	return p
}

// Settle reports how the call ended. Only the first Settle or Return counts. An unknown [Status] is
// Failed, and negative usage does not count.
func (p *Permit) Settle(r Result) {
	switch r.Status {
	case Done, Unavailable, Unreached, Throttled:
	default: // a refused settlement would hold its place until the lease ends
		r.Status = Failed
	}
	used := maps.Clone(r.Used)
	maps.DeleteFunc(used, func(_ string, n int64) bool { return n < 0 })
	p.settle(job.Call{Status: string(r.Status), RetryAfterMS: ceil(max(r.RetryAfter, 0)),
		Used: used, Error: text(r.Err)}, r.Status == Done && r.RetryAfter <= 0)
}

// Pause pauses the bucket during the call.
func (p *Permit) Pause(d time.Duration) {
	go p.repeat(job.Call{ID: rand.Text(), Status: job.CallPause, RetryAfterMS: ceil(d)})
}

// Return gives the permit back: the call did not begin.
func (p *Permit) Return() { p.settle(job.Call{Status: job.CallReturned}, false) }

func ceil(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// mostError bounds the text of an error, in bytes: it may quote an answer's whole header, and a
// message has a largest size.
const mostError = 1024

func text(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), mostError)], "")
}

// Without a lease, an idle settlement is not sent.
func (p *Permit) settle(c job.Call, idle bool) {
	p.once.Do(func() {
		switch {
		case p.Lease > 0:
			p.ended <- c
		case !idle:
			go p.repeat(c)
		}
	})
}

func (p *Permit) keep() {
	renew := time.NewTicker(max(p.Lease/3, time.Millisecond))
	defer renew.Stop()
	for {
		select {
		case c := <-p.ended:
			p.repeat(c)
			return
		case <-renew.C:
			_ = p.tell(job.Call{Status: job.CallProgress})
		}
	}
}

func (p *Permit) repeat(c job.Call) {
	for range settleTries {
		if err := p.tell(c); !errors.Is(err, admission.ErrUnavailable) &&
			!errors.Is(err, admission.ErrNoDrainer) {
			return
		}
		time.Sleep(pause)
	}
}

// hold renews the lease at a third of it, and soon after the owner has changed.
func (p *Permit) hold(k *call) {
	k.question.Op = job.OpSettle
	k.question.Call = &job.Call{ID: k.question.Call.ID, Status: job.CallProgress}
	every := max(p.Lease/3, time.Millisecond)
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case c := <-p.ended:
			p.repeat(c)
			return
		case <-k.close:
			return
		case a := <-k.answers:
			switch {
			case a.turn.State == job.TurnMoved: // count at the next owner before others ask it
				k.partitioned(a.turn.Partitions)
				timer.Reset(min(pause/10, every))
			case a.nobody, a.err != "":
				timer.Reset(min(pause, every))
			}
		case <-timer.C:
			k.asked++
			k.send()
			timer.Reset(every)
		}
	}
}
