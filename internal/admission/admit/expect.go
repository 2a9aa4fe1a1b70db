package admit

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

const (
	askTimeout   = 20 * time.Millisecond
	maxQuestions = job.MaxExpected
	// pauses for a partition without a valve, and for one whose valve did not answer
	absence, silence = 100 * time.Millisecond, time.Second
)

// expectations asks valves when jobs start. Questions during a request share the next one.
type expectations struct {
	valves Valves
	within time.Duration // askTimeout, longer in a test

	mu     sync.Mutex
	silent map[partition]time.Time
	lines  map[partition]*line
}

type partition struct {
	policy string
	number int
}

type line struct{ next *batch }

type batch struct {
	deadline time.Time
	jobs     []uint64
	done     chan struct{}
	starts   map[uint64]start
}

// start is zero without an answer.
type start struct {
	known           bool          // delay is valid
	delay           time.Duration // 0: started
	position, depth int           // as in [admission.Outcome]
	progress        string
}

func newExpectations(valves Valves) *expectations {
	return &expectations{valves: valves, within: askTimeout, lines: make(map[partition]*line),
		silent: make(map[partition]time.Time)}
}

func (e *expectations) ask(ctx context.Context, p partition, job uint64) start {
	b := e.join(p, job)
	if b == nil {
		return start{}
	}
	select {
	case <-b.done:
		return b.starts[job]
	case <-ctx.Done():
		return start{}
	}
}

// join returns nil if the partition is not asked.
func (e *expectations) join(p partition, job uint64) *batch {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lines[p]
	if l == nil && time.Now().Before(e.silent[p]) {
		return nil
	}
	if l == nil {
		l = &line{}
		e.lines[p] = l
		defer func() { go e.run(p, l) }()
	}
	if l.next == nil {
		l.next = &batch{deadline: time.Now().Add(e.within), done: make(chan struct{})}
	}
	b := l.next
	b.jobs = append(b.jobs, job)
	if len(b.jobs) == maxQuestions {
		l.next = nil
		go e.send(p, b)
	}
	return b
}

func (e *expectations) run(p partition, l *line) {
	for {
		runtime.Gosched() // let other goroutines join the batch
		e.mu.Lock()
		b := l.next
		l.next = nil
		if b == nil {
			delete(e.lines, p)
		}
		e.mu.Unlock()
		if b == nil {
			return
		}
		e.send(p, b)
	}
}

func (e *expectations) send(p partition, b *batch) {
	defer close(b.done)
	ctx, cancel := context.WithDeadline(context.Background(), b.deadline)
	defer cancel()
	answer, err := e.valves.AskValve(ctx, p.policy, p.number,
		job.Question{Op: job.OpExpect, Jobs: b.jobs})
	if errors.Is(err, nats.ErrNoResponders) {
		e.skip(p, absence)
	}
	if err != nil || answer.Error != "" {
		return
	}
	b.starts = make(map[uint64]start, len(answer.Starts))
	for _, s := range answer.Starts {
		b.starts[s.Seq] = start{s.Known, max(0, time.Duration(s.DelayMS)*time.Millisecond),
			s.Position, s.Depth, s.Progress}
	}
}

func (e *expectations) skip(p partition, d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.silent[p] = time.Now().Add(d)
}

// start is for a job accepted now.
func (e *expectations) start(ctx context.Context, p partition,
	room job.Question) (delay time.Duration, known bool) {
	e.mu.Lock()
	silent := time.Now().Before(e.silent[p])
	e.mu.Unlock()
	if silent {
		return 0, false
	}
	answer, known := e.room(ctx, p, room)
	if !known {
		e.skip(p, silence)
	}
	if answer.StartMS == nil {
		return 0, false
	}
	return max(0, time.Duration(*answer.StartMS)*time.Millisecond), known
}

func (e *expectations) room(ctx context.Context, p partition, q job.Question) (answer job.Answer,
	known bool) {
	ctx, cancel := context.WithTimeout(ctx, e.within)
	defer cancel()
	q.Op = job.OpRoom
	answer, err := e.valves.AskValve(ctx, p.policy, p.number, q)
	return answer, err == nil && answer.Error == ""
}
